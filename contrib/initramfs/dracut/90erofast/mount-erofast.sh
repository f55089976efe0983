#!/bin/sh
# Mounts the image as $NEWROOT, with the options of rootflags= on the kernel command line.
case $root in
erofast:*)
    what=${root#erofast:}
    device=${what%%:*}
    modprobe fuse
    image=$device
    if [ "$what" != "$device" ]; then
        mkdir -p /run/erofast
        mount -o ro "$device" /run/erofast || die "erofast: cannot mount $device"
        image=/run/erofast/${what#*:}
    fi
    flags=$(getarg rootflags=)
    erofast mount ${flags:+-o "$flags"} "$image" "$NEWROOT" || die "erofast: cannot mount $image"
    ;;
esac

#!/bin/sh
# Mounts the image as $NEWROOT.
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
    erofast mount "$image" "$NEWROOT" || die "erofast: cannot mount $image"
    ;;
esac

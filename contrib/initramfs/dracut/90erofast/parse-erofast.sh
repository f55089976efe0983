#!/bin/sh
# Takes root=erofast:DEVICE[:PATH] from the kernel command line, and waits for the device and for
# that of a hash tree, which rootflags= may name.
case $root in
erofast:*)
    device=${root#erofast:}
    device=${device%%:*}
    wait_for_dev "$device"
    flags=$(getarg rootflags=)
    case ,$flags in
    *,verity[._]hashdevice=/dev/*)
        tree=${flags#*verity[._]hashdevice=}
        wait_for_dev "${tree%%,*}"
        ;;
    esac
    # shellcheck disable=SC2034 # read by dracut
    rootok=1
    ;;
esac

#!/bin/sh
# Takes root=erofast:DEVICE[:PATH] of the kernel command line, and waits for the device.
case $root in
erofast:*)
    device=${root#erofast:}
    device=${device%%:*}
    wait_for_dev "$device"
    # shellcheck disable=SC2034 # read by dracut
    rootok=1
    ;;
esac

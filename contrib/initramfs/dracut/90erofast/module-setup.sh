#!/bin/bash
# dracut module: a root filesystem from an EROFS image, mounted by erofast.
# Copy this directory, with ../systemd/erofast-generator in it, to
# /usr/lib/dracut/modules.d/90erofast, then run: dracut --add erofast --force
# Kernel command line: root=erofast:/dev/disk/by-label/IMAGES (a device that is an image), or
# root=erofast:/dev/sda2:/images/root.erofs (an image in a filesystem). Mount options are those of
# rootflags=, for instance rootflags=verity.roothash=HEX; certificates in verity.d are put into the
# initramfs.

check() {
    require_binaries erofast || return 1
    # Only if it is requested.
    return 255
}

depends() {
    echo base
}

installkernel() {
    instmods fuse
}

install() {
    inst_multiple erofast mount mkdir
    inst_multiple -o /etc/verity.d/*.crt /usr/lib/verity.d/*.crt
    inst_hook cmdline 90 "$moddir/parse-erofast.sh"
    if dracut_module_included systemd; then
        # shellcheck disable=SC2154 # set by dracut
        inst_script "$moddir/erofast-generator" "$systemdutildir/system-generators/erofast-generator"
        ln -sfn "$(command -v erofast)" "$initdir/sbin/mount.erofast"
    else
        inst_hook mount 90 "$moddir/mount-erofast.sh"
    fi
}

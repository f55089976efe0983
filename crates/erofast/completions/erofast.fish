# Completion for fish: erofast itself says what may follow.

function __erofast_offered
    set -l offered (erofast complete -- (commandline -opc) (commandline -ct) 2>/dev/null)
    if set -q offered[1]
        printf '%s\n' $offered
    else
        __fish_complete_path (commandline -ct)
    end
end

for program in erofast mount.erofast fsck.erofs dump.erofs
    complete -c $program -f -k -a '(__erofast_offered)'
end

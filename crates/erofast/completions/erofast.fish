# Completion for fish: erofast itself offers the candidates.

# A word with variables replaced.
function __erofast_expanded
    set -l rest "$argv"
    set -l begin
    while set -l found (string match -r '^([^$]*)\$(\w+)(.*)$' -- "$rest")
        set -l value $$found[3]
        set begin "$begin$found[2]$value"
        set rest "$found[4]"
    end
    printf '%s\n' "$begin$rest"
end

function __erofast_offered
    set -l before
    for word in (commandline -opc)
        set -a before (__erofast_expanded $word)
    end
    # Closes an open quote.
    set -l now (commandline -ct)
    set -l last (string unescape -- "$now"; or string unescape -- "$now\""; or string unescape -- "$now'")
    set -l offered (erofast complete -- $before "$last" 2>/dev/null)
    if set -q offered[1]
        printf '%s\n' $offered
    else
        __fish_complete_path "$now"
    end
end

for program in erofast mount.erofast fsck.erofs dump.erofs
    complete -c $program -f -k -a '(__erofast_offered)'
end

# Completion for bash: erofast itself offers the candidates.

# Splits a line as the shell will, into the array words, with variables replaced; runs nothing.
# readline replaces the last word from its character number cut on.
_erofast_split() {
    local line=$1 char quote='' name part begun= before
    local variable='^\$(\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))'
    words=("") cut=0
    while [[ $line ]]; do
        char=${line:0:1} part=
        if [[ $quote != \' && $line =~ $variable ]]; then
            name=${BASH_REMATCH[2]}${BASH_REMATCH[3]} char=${BASH_REMATCH[0]}
            part=${!name-} begun=1
        elif [[ $char == "$quote" ]]; then
            quote='' cut=$before
        elif [[ $char == \\ && $quote != \' ]]; then
            part=${line:1:1} char=${line:0:2}
            [[ $quote && $part != [\\\"\$\`] ]] && part=$char
            begun=1
        elif [[ $quote ]]; then
            part=$char
        elif [[ $char == [\'\"] ]]; then
            quote=$char begun=1 before=$cut cut=${#words[-1]}
        elif [[ $char == [[:space:]] ]]; then
            [[ $begun ]] && words+=("")
            begun='' cut=0
        else
            part=$char begun=1
            [[ $char == [=:] ]] && cut=$((${#words[-1]} + 1))
        fi
        words[-1]+=$part
        line=${line:${#char}}
    done
}

_erofast() {
    local offer cut
    local -a words
    _erofast_split "${COMP_LINE:0:COMP_POINT}"
    COMPREPLY=()
    while IFS=$'\t' read -r offer _; do
        [[ $offer == *[=/] ]] && compopt -o nospace 2>/dev/null
        # Names in images, and of mount points, are quoted like those of files.
        [[ $offer == *[!A-Za-z0-9_./=:,@%+-]* ]] && compopt -o filenames 2>/dev/null
        COMPREPLY+=("${offer:cut}")
    done < <(erofast complete -- "${words[@]}" 2>/dev/null)
}

complete -o bashdefault -o default -F _erofast erofast mount.erofast fsck.erofs dump.erofs

# Completion for bash: erofast itself says what may follow.

_erofast() {
    local typed=${COMP_LINE:0:COMP_POINT} offer
    local -a words
    read -ra words <<<"$typed"
    [[ $typed == *[[:space:]] ]] && words+=("")
    typed=${words[${#words[@]} - 1]}
    COMPREPLY=()
    while IFS=$'\t' read -r offer _; do
        # bash puts no quotes around names of mount points and in images.
        [[ $offer == *[[:space:]]* ]] && continue
        [[ $offer == *[=/] ]] && compopt -o nospace 2>/dev/null
        # It replaces only what follows the last = or colon.
        COMPREPLY+=("${offer#"${typed%"${typed##*[=:]}"}"}")
    done < <(erofast complete -- "${words[@]}" 2>/dev/null)
}

complete -o bashdefault -o default -F _erofast erofast mount.erofast fsck.erofs dump.erofs

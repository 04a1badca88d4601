package consensus

// isMounted does not know: a mounted directory is found when it cannot be renamed.
func isMounted(string) bool { return false }

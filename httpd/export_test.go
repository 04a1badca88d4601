package httpd

// TookOver says whether the handler reads the connection from a client's address itself now.
func (h *Handler) TookOver(client string) bool {
	b := h.heartbeats.Load()
	b.mu.Lock()
	defer b.mu.Unlock()
	for conn := range b.conns {
		if conn.RemoteAddr().String() == client {
			return true
		}
	}
	return false
}

// ParseBeat makes parseBeat known to the tests.
func ParseBeat(b []byte, prefixes []string) (target, app, id string, size int, ok bool) {
	beat, size, ok := parseBeat(b, prefixes)
	return beat.target, beat.app, beat.id, size, ok
}

// CachedAnswers is the number of answers in the read-only cache.
func (h *Handler) CachedAnswers() int {
	h.readOnly.mu.Lock()
	defer h.readOnly.mu.Unlock()
	return len(h.readOnly.answers)
}

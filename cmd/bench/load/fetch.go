package load

// fetchStreams are the fetches of the whole registry and of the delta.
func (l *Load) fetchStreams() []*stream { return nil }

package load

// fleetStreams are the heartbeats of the instances, and the registrations and cancels of those that come and go.
func (l *Load) fleetStreams() []*stream { return nil }

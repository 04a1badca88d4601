package httpd

// statusLeader is GET status/leader: its node-to-node address, or "". Programs poll it while they start.
func (c *call) statusLeader() (any, error) {
	leader, _ := c.config.Coordination.RaftAddresses()
	return leader, nil
}

// statusPeers is GET status/peers: the voters' node-to-node addresses.
func (c *call) statusPeers() (any, error) {
	_, all := c.config.Coordination.RaftAddresses()
	return append([]string{}, all...), nil // an empty list, not null
}

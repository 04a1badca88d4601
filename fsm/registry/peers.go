package registry

// perform forgets everything about a sender.
func (op ForgetSender) perform(r *Registry, _ uint64, _ Origin) Result {
	var others []Sender // nil if none is left, as after a restore
	for _, s := range r.servers.senders {
		if s.Name != op.Sender {
			others = append(others, s)
		}
	}
	if len(others) == len(r.servers.senders) {
		return Result{Outcome: NotFound}
	}
	r.updateServers(func(k *otherServers) { k.senders = others })
	return Result{}
}

// updateServers changes what is known about other servers. It takes no Index: no list changes.
func (r *Registry) updateServers(change func(*otherServers)) {
	k := *r.servers
	change(&k)
	r.servers = &k
}

// perform records a message of a peer: it keeps the link and the sender's clock.
func (op Contact) perform(r *Registry, _ uint64, _ Origin) Result {
	link, newContact := r.servers.linkAfter(op, r.ago(op.Age).Lease)
	sender, newer := r.servers.senderAfter(op, r.clock)
	if !newContact && !newer {
		return Result{}
	}
	r.updateServers(func(k *otherServers) {
		if newContact {
			k.links = k.withLink(link)
		}
		if newer {
			k.senders = k.withSender(sender)
		}
	})
	return Result{}
}

// perform moves a peer's cursor, at most to the newest change.
func (op AckPeer) perform(r *Registry, _ uint64, _ Origin) Result {
	p := r.servers.peer(op.Peer)
	cursor := min(op.Cursor, r.index)
	if p.Known && cursor <= p.Cursor {
		return Result{}
	}
	p.Cursor, p.Known = cursor, true
	r.updateServers(func(k *otherServers) { k.peers = with(k.peers, p) })
	return Result{}
}

// perform stops or resumes sending to a peer.
func (op PausePeer) perform(r *Registry, _ uint64, _ Origin) Result {
	p := r.servers.peer(op.Peer)
	if p.Paused == op.Paused {
		return Result{}
	}
	p.Paused, p.By, p.Since = op.Paused, op.By.Clone(), r.clock
	r.updateServers(func(k *otherServers) { k.peers = with(k.peers, p) })
	return Result{}
}

// Doubt makes hearsay of all renewals so far, because the lease clock stood still for an unknown time: the node was
// down, or its process was paused. Hearsay is at least as old as the lease clock says. It keeps a lease from ending
// here, but is not sent to peers as a renewal, and does not justify keeping a lease that another server has seen end.
// The next renewal of a lease counts fully again. Doubt is not part of the state, and only for a registry without
// consensus: a cluster's lease clock runs whichever node is down.
func (r *Registry) Doubt() { r.tables.renewals.doubts.Add(1) }

// WithoutConsensus makes this the registry of a single node. It then also enters an unknown instance that is hearsay
// at its sender: the sender may have acknowledged it before going down, without sending it to another node. The
// instance gets one lease. An instance that ended meanwhile has a record of removal here.
func (r *Registry) WithoutConsensus() { r.withoutConsensus = true }

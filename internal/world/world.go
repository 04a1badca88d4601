// Package world is what a node finds around it: the network, with sockets in the file system, and the wall clock. A node that is given none has those of its machine;
// the simulator (cmd/internal/sim) gives each of its nodes another one.
//
// No other package of the server listens, dials or makes a date of the machine's clock: TestOnlyTheWorldListensAndDials and
// TestOnlyTheWorldTellsTheTime, in the root package, see to it.
package world

import (
	"context"
	"crypto/tls"
	"net"
	"syscall"
	"time"
)

// Network is where a node listens and dials. Its networks are those of package net: tcp, udp and unix.
type Network interface {
	Listen(network, address string) (net.Listener, error)
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Control sees an address before it is connected to, and refuses it by an error: net.Dialer.ControlContext.
type Control func(ctx context.Context, network, address string, c syscall.RawConn) error

// World is the surroundings of one node. Nil is the machine's own, and so is a field that is nil.
type World struct {
	Network Network
	// Ahead is how far the node's wall clock is ahead of the machine's. Nil: they are the same.
	Ahead func() time.Duration
}

// Now returns the node's wall clock, for what is shown, kept or compared with a date. Package time measures how long something takes.
func (w *World) Now() time.Time { return w.Wall(time.Now()) }

// Wall returns what the node's wall clock shows when time.Now returns a value.
func (w *World) Wall(machine time.Time) time.Time {
	if w == nil || w.Ahead == nil {
		return machine
	}
	return machine.Round(0).Add(w.Ahead())
}

// Listen listens at an address. A unix socket replaces what lies at its path, and its owner alone may use it.
func (w *World) Listen(network, address string) (net.Listener, error) {
	switch {
	case w != nil && w.Network != nil:
		return w.Network.Listen(network, address)
	case network == "unix":
		return ListenUnix(address)
	}
	return net.Listen(network, address)
}

// DialContext connects to an address. ctx bounds that, and not what is done with the connection.
func (w *World) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return w.DialControlled(ctx, network, address, nil)
}

// DialControlled is DialContext to addresses that control, unless it is nil, allows: all those of a name are asked for.
func (w *World) DialControlled(ctx context.Context, network, address string, control Control) (net.Conn, error) {
	if w == nil || w.Network == nil {
		return (&net.Dialer{ControlContext: control}).DialContext(ctx, network, address)
	}
	if control != nil {
		if err := control(ctx, network, address, nil); err != nil {
			return nil, err
		}
	}
	return w.Network.DialContext(ctx, network, address)
}

// Handshake makes a TLS connection of one that was dialled, for the host of an address. ctx bounds it.
func Handshake(ctx context.Context, plain net.Conn, address string, config *tls.Config) (net.Conn, error) {
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	conn := tls.Client(plain, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		plain.Close()
		return nil, err
	}
	return conn, nil
}

// Package world is what a node finds around it: the network and the wall clock. By default a node uses its machine's;
// the simulator (cmd/internal/sim) gives each of its nodes a world of its own.
//
// No other package of the server listens, dials or reads a date from the machine's clock:
// TestOnlyTheWorldListensAndDials and TestOnlyTheWorldTellsTheTime, in the root package, see to it.
package world

import (
	"context"
	"crypto/tls"
	"net"
	"syscall"
	"time"
)

// Network is where a node listens and dials. It knows the networks tcp, udp and unix of package net.
type Network interface {
	Listen(network, address string) (net.Listener, error)
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Control sees an address before it is connected to, and refuses it with an error, like net.Dialer.ControlContext.
type Control func(ctx context.Context, network, address string, c syscall.RawConn) error

// World is the surroundings of one node. A nil World is the machine's own, and so is a nil field.
type World struct {
	Network Network
	// Ahead returns how far the node's wall clock is ahead of the machine's. Nil means that they agree.
	Ahead func() time.Duration
}

// Now returns the node's wall clock, for what is shown, stored or compared with a date. To measure durations, use
// package time.
func (w *World) Now() time.Time { return w.Wall(time.Now()) }

// Wall returns what the node's wall clock shows when time.Now returns a value.
func (w *World) Wall(machine time.Time) time.Time {
	if w == nil || w.Ahead == nil {
		return machine
	}
	return machine.Round(0).Add(w.Ahead())
}

// Listen listens at an address. A unix socket replaces whatever is at its path, and only its owner may use it.
func (w *World) Listen(network, address string) (net.Listener, error) {
	switch {
	case w != nil && w.Network != nil:
		return w.Network.Listen(network, address)
	case network == "unix":
		return ListenUnix(address)
	}
	return net.Listen(network, address)
}

// DialContext connects to an address. ctx bounds only that, not what is done with the connection.
func (w *World) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return w.DialControlled(ctx, network, address, nil)
}

// DialControlled connects as DialContext does, but only to addresses that control, if it is not nil, allows: it is
// asked about every address of a name.
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

// Handshake makes a TLS connection from a dialled one, for the host of an address. ctx bounds it.
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

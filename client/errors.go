package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Errors that a caller can act on.
var (
	// ErrNotRegistered: the cluster has no such instance. Register it (again).
	ErrNotRegistered = errors.New("not registered")
	// ErrUnknownMember: the cluster has no node of that name. Status lists its nodes.
	ErrUnknownMember = errors.New("the cluster has no such node")
	// ErrUnknownPeer: the cluster replicates with no server of that name. Peers lists them.
	ErrUnknownPeer = errors.New("no such peer")
	// ErrUnknownSender: no server of that name was heard. Peers lists those that were.
	ErrUnknownSender = errors.New("no such sender")
	// ErrNoKey: there is no such key.
	ErrNoKey = errors.New("no such key")
	// ErrNoSession: the cluster has no such session (any more). Create another one.
	ErrNoSession = errors.New("no such session")
	// ErrNotAcquired: the lock or semaphore is held by others.
	ErrNotAcquired = errors.New("not acquired")
	// ErrLimit: the semaphore is in use with another limit. Use that one, or wait until nobody does.
	ErrLimit = errors.New("the semaphore has another limit")
	// ErrKeyConflict: a key that LockOptions.Recipe needs is in use for something else. Delete it, or
	// choose another name.
	ErrKeyConflict = errors.New("the key is in use for something else")
	// ErrLost: a lock, permit or session is not held any more, because the session ended, or because it
	// was not renewed in time and may end at any moment.
	ErrLost = errors.New("lost")
	// ErrReleased: a lock or permit was given back by Release, a session ended by Close.
	ErrReleased = errors.New("released")
	// ErrNoLeader: nobody leads the election at the moment.
	ErrNoLeader = errors.New("nobody leads")
	// ErrClosed: the Client, or the part of it that was asked, was closed.
	ErrClosed = errors.New("closed")
	// ErrNeedsRollcall: the server does not know Rollcall's own API. It is a stock Eureka server, which
	// has registration and discovery only.
	ErrNeedsRollcall = errors.New("the server is not Rollcall, and only Rollcall offers this")
	// ErrUnknownOutcome: nobody knows whether the write took effect. Repeat it, or read.
	ErrUnknownOutcome = errors.New("outcome unknown")
)

// StatusError is an answer that is neither what was asked for nor one of the errors above.
type StatusError struct {
	Server  string // base URL of who answered
	Status  int    // of HTTP
	Message string // what the server says about it; may be empty

	retryAfter time.Duration // when the server wants to be asked again; 0: it does not say
}

// Error names server, status and the server's words.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("%s answered %d %s", e.Server, e.Status, http.StatusText(e.Status))
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// elsewhere says whether another server may do better.
func (e *StatusError) elsewhere() bool {
	if e.Status == http.StatusNotImplemented {
		return false // all servers of a cluster are of one mode
	}
	return e.Status >= 300 && e.Status < 400 || e.Status >= 500
}

// mayHaveWritten says whether a write may have taken effect although this came back. A 503 says that
// nothing was done, a server that is not Rollcall cannot have done it, and without a connection nothing was
// sent. A redirect says nothing: stock servers that are not UP answer 307 and do what was asked
// (com.netflix.eureka.StatusFilter).
func mayHaveWritten(err error) bool {
	var status *StatusError
	if errors.As(err, &status) {
		return status.Status != http.StatusServiceUnavailable
	}
	if errors.As(err, new(unsent)) || errors.Is(err, ErrNeedsRollcall) {
		return false
	}
	var op *net.OpError
	var certificate *tls.CertificateVerificationError
	return !(errors.As(err, &op) && op.Op == "dial" || errors.As(err, &certificate))
}

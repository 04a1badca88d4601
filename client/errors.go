package client

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/seed-20419f34/rollcall/client/internal/transport"
)

// Errors that a caller can act on.
var (
	// ErrNotRegistered means that the cluster has no such instance. Register it (again).
	ErrNotRegistered = errors.New("not registered")
	// ErrNoAct means that the instance has no override or quarantine to end.
	ErrNoAct = errors.New("none is in force")
	// ErrUnknownMember means that the cluster has no node with that name. Status lists its nodes.
	ErrUnknownMember = errors.New("the cluster has no such node")
	// ErrUnknownPeer means that the cluster replicates with no server of that name. Peers lists them.
	ErrUnknownPeer = errors.New("no such peer")
	// ErrUnknownSender means that no server with that name was heard. Peers lists those that were.
	ErrUnknownSender = errors.New("no such sender")
	// ErrUnknownRole means that the cluster has no role with that name. Roles lists them.
	ErrUnknownRole = errors.New("no such role")
	// ErrUnknownToken means that the cluster has no token with that accessor, or no longer. Tokens lists them.
	ErrUnknownToken = errors.New("no such token")
	// ErrUnauthenticated means that the server wants to know who calls, or does not know the credential, or no
	// longer. It matches a StatusError of 401.
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrDenied means that the caller may not do this. It matches a StatusError of 403; the server names the missing
	// permission. (Consul's routes, which KV calls, also answer 403 to an unknown credential.)
	ErrDenied = errors.New("denied")
	// ErrNoKey means that the key does not exist.
	ErrNoKey = errors.New("no such key")
	// ErrNoSession means that the cluster has no such session, or no longer. Create another one.
	ErrNoSession = errors.New("no such session")
	// ErrNotAcquired means that others hold the lock or semaphore.
	ErrNotAcquired = errors.New("not acquired")
	// ErrLimit means that the semaphore is in use with another limit. Use that one, or wait until it is not in use.
	ErrLimit = errors.New("the semaphore has another limit")
	// ErrLost means that a lock, permit or session was lost: the session has ended, or was not renewed in
	// time and may end at any moment.
	ErrLost = errors.New("lost")
	// ErrReleased means that a lock or permit was given back by Release, or a session ended by Close.
	ErrReleased = errors.New("released")
	// ErrNoLeader means that the election currently has no leader.
	ErrNoLeader = errors.New("nobody leads")
	// ErrClosed means that the Client, or the part of it that was asked, was closed.
	ErrClosed = transport.ErrClosed
	// ErrNeedsRollcall means that the server does not know Rollcall's own API. It is a stock Eureka server, which has
	// only registration and discovery.
	ErrNeedsRollcall = transport.ErrNeedsRollcall
	// ErrUnknownOutcome means that nobody knows whether the write took effect. Repeat it, or read.
	ErrUnknownOutcome = transport.ErrUnknownOutcome
)

// StatusError is an answer that is neither a success nor one of the errors above.
type StatusError struct {
	Server  string // base URL of the server that responded
	Status  int    // HTTP status
	Message string // what the server says about it; may be empty
}

// Error names server, status and the server's words.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("%s answered %d %s", e.Server, e.Status, http.StatusText(e.Status))
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// Is makes an answer of 401 match ErrUnauthenticated, and one of 403 ErrDenied.
func (e *StatusError) Is(target error) bool {
	return target == ErrUnauthenticated && e.Status == http.StatusUnauthorized || target == ErrDenied && e.Status == http.StatusForbidden
}

// refused reports whether another try would get the same response.
func refused(err error) bool {
	if errors.Is(err, ErrClosed) || errors.Is(err, ErrNeedsRollcall) {
		return true
	}
	status, ok := errors.AsType[*StatusError](err)
	return ok && status.Status >= 400 && status.Status < 500 && status.Status != http.StatusTooManyRequests
}

// offersNone reports whether the cluster has no coordination at all.
func offersNone(err error) bool {
	status, ok := errors.AsType[*StatusError](err)
	return ok && status.Status == http.StatusNotImplemented
}

// isPermanent reports whether another try to acquire would fare no better.
func isPermanent(err error) bool {
	return refused(err) || offersNone(err) || errors.Is(err, ErrLimit)
}

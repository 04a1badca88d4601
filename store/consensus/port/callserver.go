package port

import (
	"bufio"
	"encoding/gob"
	"errors"
	"net"
	"net/rpc"
	"sync"
)

// Calls has what a node performs for others on the node channel, by the name of the call. It talks to clients of
// net/rpc. The server of net/rpc finds methods by reflection, which makes the linker keep every exported method of
// the whole program: a fifth of its size.
type Calls map[string]acceptor

// acceptor reads the arguments of a call and returns a function that performs it.
type acceptor func(decode func(any) error) (perform func() (reply any), err error)

// Method makes a table entry from a function that returns the reply.
func Method[A, R any](method func(A) R) acceptor {
	return func(decode func(any) error) (func() any, error) {
		var args A
		if err := decode(&args); err != nil {
			return nil, err
		}
		return func() any { return method(args) }, nil
	}
}

// Serve performs the calls of one connection, and replies to each as soon as it has finished. It returns when the
// connection and all its calls have ended; calls still being served end within their own time limits.
func (t Calls) Serve(conn net.Conn, _ Hello) {
	conn = sender{conn}
	defer conn.Close()
	var calls sync.WaitGroup
	defer calls.Wait()
	out := bufio.NewWriter(conn)
	requests, replies := gob.NewDecoder(bufio.NewReader(conn)), &replies{conn: conn, out: out, enc: gob.NewEncoder(out)}
	for {
		var request rpc.Request
		if err := requests.Decode(&request); err != nil {
			return
		}
		perform, err := t.accept(request.ServiceMethod, requests.Decode)
		if err != nil {
			replies.send(request, nil, err)
			continue
		}
		calls.Go(func() { replies.send(request, perform(), nil) })
	}
}

func (t Calls) accept(name string, decode func(any) error) (func() any, error) {
	if accept, ok := t[name]; ok {
		return accept(decode)
	}
	return nil, errors.Join(errors.New(unknownCall+name), decode(nil))
}

// unknownCall precedes the name of the call in the error, on the wire, for a call that a node does not know.
const unknownCall = "this node knows no call "

// replies writes the replies of one connection.
type replies struct {
	conn net.Conn

	mu  sync.Mutex // guards the fields below
	out *bufio.Writer
	enc *gob.Encoder
}

// send hangs up if it fails: a caller must not take part of a reply for the next one.
func (r *replies) send(request rpc.Request, reply any, err error) {
	response := rpc.Response{ServiceMethod: request.ServiceMethod, Seq: request.Seq}
	if err != nil {
		response.Error, reply = err.Error(), struct{}{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := errors.Join(r.enc.Encode(&response), r.enc.Encode(reply), r.out.Flush()); err != nil {
		r.conn.Close()
	}
}

// Outcome says how a call ended, where its reply carries that. The calls and their replies are exported because
// encoding/gob requires it; replies have it in a field that is called Answer on the wire.
type Outcome uint8

// The outcomes, with their numbers on the wire.
const (
	OK Outcome = iota
	NotLeader
	Unknown
	Refused
	NoSuchNode
	RunsTwice
	Unreadable
)

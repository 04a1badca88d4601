package store

import (
	"context"
	"time"

	"github.com/hashicorp/raft"
)

// pipelineLimit is how long the handing over of one request may take: longer than an answer may, after
// which the connection is given up anyway.
const pipelineLimit = transportTimeout + time.Second

// transport is hashicorp/raft's, whose pipelines end by themselves where they would hang. When a follower
// refuses a request, raft stops to read the answers of the pipeline; a sender that waits at that moment to
// hand over its next request then waits for ever, with the follower left behind and the node unable to
// stop (pipelineDecode in raft's replication.go, AppendEntries in net_transport.go).
//
// It also passes on to Raft's main loop what other nodes ask, so that this node can ask as well (loop.go).
type transport struct {
	*raft.NetworkTransport
	closing context.Context // ends when the node stops
	rpcs    chan raft.RPC   // to the main loop
}

// Consumer implements raft.Transport.
func (t *transport) Consumer() <-chan raft.RPC { return t.rpcs }

// passOn passes requests on to the main loop until the node stops.
func (t *transport) passOn() {
	for {
		select {
		case rpc := <-t.NetworkTransport.Consumer():
			select {
			case t.rpcs <- rpc:
			case <-t.closing.Done():
				return
			}
		case <-t.closing.Done():
			return
		}
	}
}

// AppendEntries implements raft.Transport.
func (t *transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	bound(args)
	return t.NetworkTransport.AppendEntries(id, target, args, resp)
}

// bound leaves to the next request the entries for which this one has no room. Raft, which counts entries and
// not bytes, takes from the request afterwards how far the follower has come (updateLastAppended and
// pipelineSend in replication.go).
func bound(args *raft.AppendEntriesRequest) { args.Entries = args.Entries[:fitting(args.Entries)] }

// AppendEntriesPipeline implements raft.Transport.
func (t *transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	p, err := t.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	return newPipeline(t.closing, p), nil
}

// pipeline is a pipeline that nobody waits in for longer than pipelineLimit.
type pipeline struct {
	raft.AppendPipeline
	detach func() bool // from the context that closes it
}

func newPipeline(closing context.Context, p raft.AppendPipeline) *pipeline {
	return &pipeline{AppendPipeline: p, detach: context.AfterFunc(closing, func() { p.Close() })}
}

// AppendEntries implements raft.AppendPipeline.
func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	hung := time.AfterFunc(pipelineLimit, func() { p.Close() })
	defer hung.Stop()
	bound(args)
	return p.AppendPipeline.AppendEntries(args, resp)
}

// Close implements raft.AppendPipeline.
func (p *pipeline) Close() error {
	p.detach()
	return p.AppendPipeline.Close()
}

package observe

import (
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

const (
	registryPath = "/eureka/v2/apps"
	// listShare is the most of its time that the reading of a node's lists takes: large registries are read less often.
	listShare = 10
)

// follow fetches a node's list, as an unmodified client does, again and again, and judges it by the book. The nodes
// are asked in turn, not all at once.
func (o *Observer) follow(ctx context.Context, node int) {
	asker, reader := o.asker(node), newListReader()
	turn := o.config.Every * time.Duration(node) / time.Duration(len(o.config.Nodes))
	if !wait(ctx, turn) {
		return
	}
	repeat(ctx, o.config.Every, func() (pause time.Duration) {
		asked := time.Now()
		list, work := o.list(ctx, node, asker, reader)
		if ctx.Err() == nil {
			o.noteList(lastList{asked, list})
		}
		return (listShare - 1) * work
	})
}

// list fetches and judges one list. work is the part of the time that was spent here, and not with waiting for the node.
func (o *Observer) list(ctx context.Context, node int, a *asker, reader *listReader) (list trial.List, work time.Duration) {
	asked := time.Now()
	answer, err := a.find(ctx, registryPath)
	answered := time.Now()
	list = trial.List{Node: node, Failed: true}
	if err == nil {
		if listing, err := reader.registry(answer.body); err == nil {
			list = o.config.Book.Judge(node, listing, asked, answered)
		}
		work = time.Since(answer.begun)
	}
	list.Asked, list.Answered = o.at(asked), o.at(answered)
	return list, work
}

func (o *Observer) noteList(l lastList) {
	o.note(func(t *trial.Trial) {
		t.Lists = append(t.Lists, l.List)
		o.lists[l.Node] = l
	})
}

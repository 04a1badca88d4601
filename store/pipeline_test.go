package store

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// stuckPipeline is a pipeline whose answers nobody reads.
type stuckPipeline struct {
	closed chan struct{}
	once   sync.Once
}

func (p *stuckPipeline) AppendEntries(*raft.AppendEntriesRequest, *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	<-p.closed
	return nil, raft.ErrPipelineShutdown
}

func (p *stuckPipeline) Consumer() <-chan raft.AppendFuture { return nil }

func (p *stuckPipeline) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func TestNobodyHangsInAPipeline(t *testing.T) {
	tests := []struct {
		name  string
		stops time.Duration // when the node stops
		want  time.Duration
	}{
		{"the node goes on", time.Hour, pipelineLimit},
		{"the node stops", time.Second, time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				closing, stop := context.WithTimeout(t.Context(), tt.stops)
				defer stop()
				p := newPipeline(closing, &stuckPipeline{closed: make(chan struct{})})
				began := time.Now()
				_, err := p.AppendEntries(&raft.AppendEntriesRequest{}, nil)
				if got := time.Since(began); !errors.Is(err, raft.ErrPipelineShutdown) || got != tt.want {
					t.Errorf("ended after %v with %v, want the end of the pipeline after %v", got, err, tt.want)
				}
				if err := p.Close(); err != nil { // raft closes it once more
					t.Error(err)
				}
			})
		})
	}
}

package batcher

import (
	"context"
	"time"
)

// Dispatcher accepts tasks for one receiver (upstream: TaskDispatcher). Safe for concurrent use.
type Dispatcher[K comparable, T any] struct{ config Config[K, T] }

// New makes a dispatcher. It starts nothing.
func New[K comparable, T any](c Config[K, T]) *Dispatcher[K, T] { return &Dispatcher[K, T]{c} }

// Process accepts a task and returns at once. Expiry is when it is of no use any more; zero: never.
// After Run has ended the task is dropped as Stopped.
func (d *Dispatcher[K, T]) Process(id K, task T, expiry time.Time) { panic("not written") }

// Run transmits until ctx ends. It then waits for transmissions under way, and either tries to send what
// is pending for at most drain (0: not at all) or drops it.
func (d *Dispatcher[K, T]) Run(ctx context.Context, drain time.Duration) error { panic("not written") }

// Room is how many more tasks of new ids fit without an overflow.
func (d *Dispatcher[K, T]) Room() int { panic("not written") }

// Freed receives a value when Room has grown, or when nothing is pending or in flight any more. Values
// are not counted: whoever receives one looks.
func (d *Dispatcher[K, T]) Freed() <-chan struct{} { panic("not written") }

// Stats are the present numbers.
func (d *Dispatcher[K, T]) Stats() Stats { panic("not written") }

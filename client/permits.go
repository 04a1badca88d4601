package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/seed-20419f34/rollcall/fsm/kv"
)

// Locks returns the locks that somebody holds or waits for, by name.
func (c *Client) Locks(ctx context.Context) ([]Permits, error) { return c.permits(ctx, kv.Lock) }

// Semaphores returns the semaphores that somebody holds or waits for, by name.
func (c *Client) Semaphores(ctx context.Context) ([]Permits, error) {
	return c.permits(ctx, kv.Semaphore)
}

func (c *Client) permits(ctx context.Context, k kv.Kind) ([]Permits, error) {
	var all []Permits
	path := permitPath(k, "")
	if err := c.readJSON(ctx, &all, path[:len(path)-1]...); err != nil {
		return nil, fmt.Errorf("list the %ss: %w", kindName(k), err)
	}
	return all, nil
}

// Lock returns who holds a lock and who waits for it; nobody if there is no such lock.
func (c *Client) Lock(ctx context.Context, name string) (Permits, error) {
	return c.permit(ctx, kv.Lock, name)
}

// Semaphore returns who holds a semaphore and who waits for it; nobody if there is no such semaphore.
func (c *Client) Semaphore(ctx context.Context, name string) (Permits, error) {
	return c.permit(ctx, kv.Semaphore, name)
}

func (c *Client) permit(ctx context.Context, k kv.Kind, name string) (Permits, error) {
	p := Permits{Name: name}
	err := c.readJSON(ctx, &p, permitPath(k, name)...)
	var status *StatusError
	if errors.As(err, &status) && status.Status == http.StatusNotFound {
		return Permits{Name: name}, nil
	}
	if err != nil {
		return Permits{}, fmt.Errorf("read %s %q: %w", kindName(k), name, err)
	}
	return p, nil
}

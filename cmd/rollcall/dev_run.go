package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/client"
)

// runDev runs a local cluster until ctx ends or every node has died.
func runDev(ctx context.Context, o devOptions, out io.Writer) error {
	nodes := o.plan()
	if err := errors.Join(checkPorts(nodes), o.checkData()); err != nil {
		return err
	}
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	d := &devCluster{out: out, leads: o.mode == modeCP, deaths: make(chan *devChild, len(nodes))}
	defer d.stop()
	for _, n := range nodes {
		c, err := n.start(binary, o.serverArgs(n, nodes))
		if err != nil {
			return err
		}
		d.watch(c)
		fmt.Fprintln(out, n.line(c.cmd.Process.Pid))
	}
	if err := d.awaitReady(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	return d.supervise(ctx)
}

// devCluster is the processes of a running local cluster.
type devCluster struct {
	out      io.Writer
	leads    bool // the nodes have a leader
	children []*devChild
	deaths   chan *devChild // room for all, so that nobody waits to die
}

func (d *devCluster) watch(c *devChild) {
	d.children = append(d.children, c)
	go func() {
		<-c.done
		d.deaths <- c
	}()
}

// awaitReady returns nil when every node may serve and knows a leader if it is to have one, or when ctx
// has ended.
func (d *devCluster) awaitReady(ctx context.Context) error {
	const every = 50 * time.Millisecond
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	timeout := time.NewTimer(readyWithin)
	defer timeout.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case c := <-d.deaths:
			return errors.New(c.obituary())
		case <-timeout.C:
			return fmt.Errorf("the cluster is not ready after %v; see the nodes' logs, such as %s", readyWithin, d.children[0].log)
		case <-ticker.C:
			if d.ready(ctx) {
				return nil
			}
		}
	}
}

func (d *devCluster) ready(ctx context.Context) bool {
	for _, c := range d.children {
		if !c.ready(ctx, d.leads) {
			return false
		}
	}
	return true
}

// awaitReady waits until the node may serve and, if there is to be one, knows a leader, or until ctx or the
// process has ended.
func (c *devChild) awaitReady(ctx context.Context, leader bool) error {
	const every = 5 * time.Millisecond
	for !c.ready(ctx, leader) {
		select {
		case <-c.done:
			return errors.New(c.obituary())
		case <-ctx.Done():
			return fmt.Errorf("start %s: %w; the end of %s:\n%s", c.name(), context.Cause(ctx), c.log, lastLines(c.log, 5))
		case <-time.After(every):
		}
	}
	return nil
}

// ready asks the node whether it may serve and, if there is to be one, knows a leader.
func (c *devChild) ready(ctx context.Context, leader bool) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	url := "http://" + c.http
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || !leader {
		return resp.StatusCode == http.StatusOK
	}
	cl, err := client.New(client.Config{Servers: []string{url}})
	if err != nil {
		return false
	}
	status, err := cl.Status(ctx)
	return err == nil && status.Leader != ""
}

// supervise reports nodes that die. It returns nil when ctx has ended, and an error when all are dead.
func (d *devCluster) supervise(ctx context.Context) error {
	for range d.children {
		select {
		case <-ctx.Done():
			return nil
		case c := <-d.deaths:
			fmt.Fprintln(d.out, c.obituary())
		}
	}
	return errors.New("every node has ended")
}

// stop ends all processes at once and waits for them.
func (d *devCluster) stop() {
	var wg sync.WaitGroup
	for _, c := range d.children {
		wg.Go(c.stop)
	}
	wg.Wait()
}

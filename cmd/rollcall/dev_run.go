package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/seed-20419f34/rollcall/cmd/localcluster"
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
	defer localcluster.StopAll(nodes)
	for _, n := range nodes {
		if err := n.Start(binary); err != nil {
			return err
		}
		fmt.Fprintln(out, nodeLine(n))
	}
	if err := localcluster.AwaitReady(ctx, nodes); ctx.Err() != nil {
		return nil
	} else if err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	return supervise(ctx, nodes, out)
}

// nodeLine is what dev prints for a node; scripts read it.
func nodeLine(n *localcluster.Node) string {
	return fmt.Sprintf("node=%s dc=%s http=%s pid=%d", strings.TrimPrefix(n.Name, "node"), n.Datacenter, n.HTTP, n.Pid())
}

// supervise reports nodes that die. It returns nil when ctx has ended, and an error when all are dead.
func supervise(ctx context.Context, nodes []*localcluster.Node, out io.Writer) error {
	deaths := make(chan *localcluster.Node, len(nodes)) // room for all, so that no goroutine waits
	for _, n := range nodes {
		go func() {
			<-n.Done()
			deaths <- n
		}()
	}
	for range nodes {
		select {
		case <-ctx.Done():
			return nil
		case n := <-deaths:
			fmt.Fprintf(out, "%s %s\n", nodeLine(n), n.Obituary())
		}
	}
	return errors.New("every node has ended")
}

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// mixed is published Eureka servers, a datacenter with consensus and one without it, all peers of each other.
type mixed struct{ eureka, cp, ap []*Node }

// startMixed starts so many of each.
func startMixed(t *testing.T, eureka, cp, ap int) mixed {
	t.Helper()
	var peers, addrs []string
	for n := range eureka {
		addrs = append(addrs, FreeAddr(t))
		peers = append(peers, fmt.Sprintf("old%d=http://%s/eureka", n+1, addrs[n]))
	}
	settings := map[string]string{"replication.eureka": strings.Join(peers, ",")}
	d := StartUnlikeDatacenters(t, Config{Nodes: cp, Settings: settings}, Config{AP: true, Nodes: ap, Settings: settings})
	m := mixed{cp: d.Clusters[0].Nodes, ap: d.Clusters[1].Nodes}
	for n, addr := range addrs {
		// A property that is given several times is a list of all that it was given.
		var others []string
		for _, other := range d.Nodes()[1:] {
			others = append(others, "--eureka.client.service-url.defaultZone="+other.Eureka())
		}
		for i, other := range addrs {
			if i != n {
				others = append(others, "--eureka.client.service-url.defaultZone=http://"+other+"/eureka/")
			}
		}
		server := startEurekaServer(t, addr, d.Nodes()[0], others...)
		server.Name = fmt.Sprintf("eureka%d", n+1)
		m.eureka = append(m.eureka, server)
	}
	for i, n := range m.ap {
		n.Name = fmt.Sprintf("ap%d", i+1)
	}
	for i, n := range m.cp {
		n.Name = fmt.Sprintf("cp%d", i+1)
	}
	return m
}

// all are all servers.
func (m mixed) all() []*Node { return append(m.rollcall(), m.eureka...) }

// rollcall are the nodes of Rollcall.
func (m mixed) rollcall() []*Node { return append(m.cp[:len(m.cp):len(m.cp)], m.ap...) }

// startClient registers an instance at a server, and renews it there every second until the test ends
// or stop is called. It registers again when a heartbeat is answered by 404: as it registered before, as many clients do, or
// with a new timestamp, as Netflix' does.
func startClient(t *testing.T, at *Node, i Instance, newTimestamp bool) (stop func()) {
	t.Helper()
	mustDo(t, "register", at.Register(i))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for ticker := time.NewTicker(time.Second); ; {
			select {
			case <-ctx.Done():
				ticker.Stop()
				return
			case <-ticker.C:
			}
			beat := at.Do(Request{Method: http.MethodPut, Path: fmt.Sprintf("%s?lastDirtyTimestamp=%d", path(i.App, i.ID), i.Dirty)})
			if beat.Status == http.StatusNotFound {
				if newTimestamp {
					i.Dirty = time.Now().UnixMilli()
				}
				at.Register(i) // the next heartbeat shows whether it was taken
			}
		}
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// awaitShown waits until a server shows an instance, and shows it so.
func awaitShown(t *testing.T, server *Node, app, id, what string, right func(*Listed) bool) {
	t.Helper()
	Eventually(t, replicated, fmt.Sprintf("%s shows %s with %s", server.Name, id, what), func() error {
		shown, err := server.Lookup(app, id)
		switch {
		case err != nil:
			return err
		case shown == nil:
			return errors.New("it is not there")
		case !right(shown):
			return fmt.Errorf("it is %+v", *shown)
		}
		return nil
	})
}

// TestInstanceOfAPublishedEurekaServerComesBackAfterACancel: an instance whose home is a published server is canceled while it
// lives, at the home or at a node, and is back at every node, under whatever timestamp it has, and so is what is done to
// it at its home afterwards.
func TestInstanceOfAPublishedEurekaServerComesBackAfterACancel(t *testing.T) {
	t.Parallel()
	m := startMixed(t, 1, 1, 2)
	home := m.eureka[0]
	for _, tc := range []struct {
		name     string
		canceled *Node
		later    int64 // ms, by its client's clock, at which it registers again
	}{
		{name: "at a node with consensus", canceled: m.cp[0]},
		{name: "at a node without consensus", canceled: m.ap[0]},
		{name: "at its home, and its clock went back", canceled: home, later: -5000},
		{name: "at its home, and registers as before", canceled: home},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			const app = "BILLING"
			id := strings.ReplaceAll(tc.name, " ", "-")
			i := Instance{App: app, ID: id, Duration: 9, Dirty: time.Now().UnixMilli()} // heartbeats every 3 s
			stop := startClient(t, home, i, false)
			for _, n := range m.all() {
				awaitOn(t, n, app, id, "UP")
			}
			if tc.canceled == home {
				stop()
				mustDo(t, "cancel", home.Cancel(app, id))
				for _, n := range m.rollcall() {
					awaitOn(t, n, app, id, "")
				}
				i.Dirty += tc.later
				startClient(t, home, i, false)
			} else {
				mustDo(t, "cancel", tc.canceled.Cancel(app, id))
				shown, err := tc.canceled.Lookup(app, id)
				need.That(t, err == nil && shown == nil, "after its cancel it is there: %+v, %v", shown, err)
			}
			for _, n := range m.all() {
				awaitOn(t, n, app, id, "UP")
			}
			awaitHeartbeats(t, m.all(), app, id)
			mustDo(t, "metadata", home.Do(Request{Method: http.MethodPut, Path: path(app, id) + "/metadata?color=blue"}))
			for _, n := range m.all() {
				awaitShown(t, n, app, id, "its metadata", func(l *Listed) bool { return l.Metadata["color"] == "blue" })
			}
			mustDo(t, "override", home.Override(app, id, "OUT_OF_SERVICE"))
			for _, n := range m.all() {
				awaitOn(t, n, app, id, "OUT_OF_SERVICE")
			}
		})
	}
	t.Run("port -1", func(t *testing.T) {
		t.Parallel()
		mustShowNoPortEverywhere(t, m)
	})
}

// awaitHeartbeats waits until two heartbeats of an instance have come to each server. What a published server sends after a
// heartbeat that failed, the instance as it was before, has come then, too: with the same timestamp it would undo what is
// changed meanwhile, at published servers as well.
func awaitHeartbeats(t *testing.T, servers []*Node, app, id string) {
	t.Helper()
	for _, n := range servers {
		var last int64
		beats := -1 // what is seen first is none
		awaitShown(t, n, app, id, "two more heartbeats", func(l *Listed) bool {
			if l.LeaseInfo.Renewed > last {
				last, beats = l.LeaseInfo.Renewed, beats+1
			}
			return beats >= 2
		})
	}
}

// mustShowNoPortEverywhere registers instances without a web server, as their clients do, at a server of each kind.
func mustShowNoPortEverywhere(t *testing.T, m mixed) {
	t.Helper()
	const app = "WORKERS"
	for _, home := range []*Node{m.eureka[0], m.cp[0], m.ap[0]} {
		id := "worker-of-" + home.Name
		startClient(t, home, Instance{App: app, ID: id, Port: -1, Dirty: time.Now().UnixMilli()}, false)
		for _, n := range m.all() {
			awaitShown(t, n, app, id, "port -1", func(l *Listed) bool { return l.Port.Number == -1 && l.Port.Enabled == "true" })
			xml := n.Do(Request{Method: http.MethodGet, Path: path(app, id), Accept: "application/xml"})
			expect.That(t, strings.Contains(string(xml.Body), `<port enabled="true">-1</port>`), "%s shows in XML %s", n.Name, xml.Body)
		}
		for _, n := range m.rollcall() {
			var own []api.Instance
			need.OK(t, json.Unmarshal(n.Get("/v1/rollcall/apps").Body, &own))
			at := slices.IndexFunc(own, func(i api.Instance) bool { return i.ID == id })
			expect.That(t, at >= 0 && own[at].Port == 0, "%s shows in our own API %+v", n.Name, own)
		}
		consul := m.cp[0].Get("/v1/catalog/service/workers")
		expect.That(t, strings.Contains(string(consul.Body), `"ServicePort":0`), "%s shows in Consul's API %v", m.cp[0].Name, consul)
	}
}

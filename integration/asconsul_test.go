package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/localcluster"
)

// asConsul is set in the environment where this test program is started in the place of consul.
const asConsul = "ROLLCALL_AS_CONSUL"

// consul is what the tests of Consul's own client start and expect to be Consul: `consul version
// -format=json`, and `consul agent -config-file FILE`, which here is one node of Rollcall behind the
// port that FILE names.
func consul(args []string) error {
	switch {
	case len(args) > 0 && args[0] == "version":
		fmt.Printf(`{"Version":%q}`, consulVersion) // for how the tests write FILE
		return nil
	case len(args) == 3 && args[0] == "agent" && args[1] == "-config-file":
		return consulAgent(args[2])
	}
	return fmt.Errorf("consul: called with %q", args)
}

func consulAgent(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var config consulConfig
	if err := json.Unmarshal(text, &config); err != nil {
		return err
	}
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	interrupted, orphaned := context.WithCancel(interrupted)
	defer orphaned()
	go func() { // a test that panics interrupts nobody
		for parent := os.Getppid(); os.Getppid() == parent; {
			<-time.After(time.Second)
		}
		orphaned()
	}()
	behind := localcluster.Address(config.Ports.HTTPS) // nobody else uses it
	node := exec.Command(os.Getenv("ROLLCALL_BIN"), "server",
		"--node-name=n1", "--http-addr="+behind, "--cluster-addr="+localcluster.Address(config.Ports.Server),
		"--cluster-bootstrap-expect=1", "--data-dir="+filepath.Join(filepath.Dir(file), "rollcall"),
		"--raft-heartbeat-timeout=200ms", "--raft-election-timeout=200ms", "--raft-lease-timeout=200ms")
	node.Stdout, node.Stderr = os.Stdout, os.Stderr
	node.Env = append(os.Environ(), "ROLLCALL_PARENT_PIPE=1")
	if _, err := node.StdinPipe(); err != nil { // it ends when this process does, however that ends
		return err
	}
	if err := node.Start(); err != nil {
		return err
	}
	l, err := net.Listen("tcp", localcluster.Address(config.Ports.HTTP))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: inFrontOf(behind, config)}
	go func() {
		<-interrupted.Done()
		_ = node.Process.Signal(syscall.SIGTERM) // it may have ended already
		_ = node.Wait()
		server.Close()
	}()
	_ = server.Serve(l) // until it is closed
	return nil
}

// consulConfig is what is read of FILE.
type consulConfig struct {
	NodeName string `json:"node_name"`
	NodeID   string `json:"node_id"`
	Ports    struct {
		HTTP   int `json:"http"`
		HTTPS  int `json:"https"`
		Server int `json:"server"`
	} `json:"ports"`
}

// Of Rollcall's only logical node, and of the version that consul says it is.
const (
	logicalNode   = "rollcall"
	consulVersion = "1.14.11"
)

// inFrontOf passes everything on, but for the one question about the service mesh, which Rollcall does
// not have, that the tests ask before they begin. The tests expect the node's name and id that they wrote
// into FILE, and the version of the program; Rollcall's are put in their place.
func inFrontOf(address string, config consulConfig) http.Handler {
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: address})
	proxy.ModifyResponse = func(r *http.Response) error {
		self, err := askSelf(address)
		if err != nil {
			return err
		}
		return rewrite(&r.Body, r.Header, &r.ContentLength, strings.NewReplacer(
			quoted(logicalNode), quoted(config.NodeName), self.NodeID, config.NodeID,
			`"consul-version":`+quoted(self.Version), `"consul-version":`+quoted(consulVersion)))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/agent/connect/ca/roots" {
			fmt.Fprint(w, `{"ActiveRootID":"none","Roots":[{"ID":"none"}]}`)
			return
		}
		r.Header.Del("Accept-Encoding")
		r.URL.Path = strings.ReplaceAll(r.URL.Path, config.NodeName, logicalNode)
		r.URL.RawPath = ""
		if err := rewrite(&r.Body, r.Header, &r.ContentLength, strings.NewReplacer(quoted(config.NodeName), quoted(logicalNode))); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		proxy.ServeHTTP(w, r)
	})
}

func quoted(text string) string { return `"` + text + `"` }

// rewrite replaces texts in a body.
func rewrite(body *io.ReadCloser, header http.Header, length *int64, texts *strings.Replacer) error {
	text, err := io.ReadAll(*body)
	if err != nil {
		return err
	}
	changed := texts.Replace(string(text))
	*body, *length = io.NopCloser(strings.NewReader(changed)), int64(len(changed))
	header.Set("Content-Length", fmt.Sprint(len(changed)))
	return nil
}

// agentSelf is the part of agent/self that the tests compare.
type agentSelf struct{ NodeID, Version string }

func askSelf(address string) (agentSelf, error) {
	resp, err := http.Get("http://" + address + "/v1/agent/self")
	if err != nil {
		return agentSelf{}, err
	}
	defer resp.Body.Close()
	var self struct{ Config agentSelf }
	err = json.NewDecoder(resp.Body).Decode(&self)
	return self.Config, err
}

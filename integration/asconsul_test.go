package integration

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
)

// asConsul is set in the environment where this test program is started in the place of consul.
const asConsul = "ROLLCALL_AS_CONSUL"

// consul is what the tests of Consul's own client start and expect to be Consul: `consul version
// -format=json`, and `consul agent -config-file FILE`, which here is one node of Rollcall behind the
// port that FILE names.
func consul(args []string) error {
	switch {
	case len(args) > 0 && args[0] == "version":
		fmt.Println(`{"Version":"1.14.11"}`) // for how the tests write FILE
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
	var config struct {
		Ports struct {
			HTTP   int `json:"http"`
			HTTPS  int `json:"https"`
			Server int `json:"server"`
		} `json:"ports"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return err
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	behind := loopback(config.Ports.HTTPS) // nobody else uses it
	node := exec.Command(os.Getenv("ROLLCALL_BIN"), "server",
		"--node-name=n1", "--http-addr="+behind, "--cluster-addr="+loopback(config.Ports.Server),
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
	l, err := net.Listen("tcp", loopback(config.Ports.HTTP))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: inFrontOf(behind)}
	go func() {
		<-interrupted
		_ = node.Process.Signal(syscall.SIGTERM) // it may have ended already
		_ = node.Wait()
		server.Close()
	}()
	_ = server.Serve(l) // until it is closed
	return nil
}

// inFrontOf passes everything on, but for the one question about the service mesh, which Rollcall does
// not have, that the tests ask before they begin.
func inFrontOf(address string) http.Handler {
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: address})
	proxy.FlushInterval = -1
	proxy.ErrorLog = nil
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/agent/connect/ca/roots" {
			fmt.Fprint(w, `{"ActiveRootID":"none","Roots":[{"ID":"none"}]}`)
			return
		}
		proxy.ServeHTTP(w, r)
	})
}

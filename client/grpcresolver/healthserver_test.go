package grpcresolver

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// asHealthServer makes this test's binary a gRPC server with the health service: the server's tests probe it, whose module
// needs no gRPC.
const asHealthServer = "ROLLCALL_TEST_HEALTH_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asHealthServer) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	if err := serveHealth(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serveHealth serves until in ends. It writes a line with the addresses without and with TLS, reads lines of a service and its
// status, such as "orders NOT_SERVING", and writes a line after each.
func serveHealth(in io.Reader, out io.Writer) error {
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	service := health.NewServer()
	var addresses []string
	for _, options := range [][]grpc.ServerOption{nil, {grpc.Creds(credentials.NewServerTLSFromCert(&certificate))}} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		server := grpc.NewServer(options...)
		grpc_health_v1.RegisterHealthServer(server, service)
		go server.Serve(listener)
		defer server.Stop()
		addresses = append(addresses, listener.Addr().String())
	}
	fmt.Fprintln(out, strings.Join(addresses, " "))
	for lines := bufio.NewScanner(in); lines.Scan(); {
		name, status, _ := strings.Cut(lines.Text(), " ")
		service.SetServingStatus(name, grpc_health_v1.HealthCheckResponse_ServingStatus(grpc_health_v1.HealthCheckResponse_ServingStatus_value[status]))
		fmt.Fprintln(out, "done")
	}
	return nil
}

// selfSigned is a certificate of nobody's.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"orders.example"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

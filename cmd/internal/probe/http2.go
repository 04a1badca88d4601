package probe

//lint:file-ignore SA1019 net/http's connections, which are to be used in the place of these, cannot send a PING

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
)

// A gRPC health check is one request with a message of one field. That is little to write over an HTTP/2 connection,
// which the ping needs anyway; google.golang.org/grpc would make the server a third larger (docs/dependencies.md).

// connect opens an HTTP/2 connection without asking whether the other side speaks it (RFC 9113, 3.3).
func (c *caller) connect(ctx context.Context, p *catalog.Probe, address string) (*http2.ClientConn, error) {
	conn, err := c.dial(ctx, p, address, http2.NextProtoTLS)
	if err != nil {
		return nil, err
	}
	t := &http2.Transport{AllowHTTP: true, DisableCompression: true, MaxHeaderListSize: maxHeader}
	h2, err := t.NewClientConn(conn)
	if err != nil {
		conn.Close()
	}
	return h2, err
}

// ping passes if an HTTP/2 connection answers a PING frame. Texts are Consul's (agent/checks/check.go, CheckH2PING).
func (c *caller) ping(ctx context.Context, p *catalog.Probe, address string) (result, error) {
	conn, err := c.connect(ctx, p, address)
	if err != nil {
		return result{catalog.Critical, fmt.Sprintf("Failed to dial to %s: %s", address, describe(err))}, nil
	}
	defer conn.Close()
	if err := conn.Ping(ctx); err != nil {
		return result{catalog.Critical, "HTTP2 ping failed: " + describe(err)}, nil
	}
	return result{catalog.Passing, "HTTP2 ping was successful"}, nil
}

// grpc asks the health service of a gRPC server (https://github.com/grpc/grpc/blob/master/doc/health-checking.md) about
// the service that the check names, or about the server. Only SERVING passes. Texts are those of Consul
// (agent/checks/grpc.go), and of grpc-go, whose errors Consul shows.
func (c *caller) grpc(ctx context.Context, p *catalog.Probe, address string) (result, error) {
	_, service, _ := strings.Cut(p.GRPC, "/")
	status, err := c.health(ctx, p, address, service)
	switch {
	case err != nil:
		return result{catalog.Critical, err.Error()}, nil
	case status != serving:
		return result{catalog.Critical, fmt.Sprintf("gRPC %s serving status: %s", p.GRPC, status)}, nil
	}
	return result{catalog.Passing, fmt.Sprintf("gRPC check %s: success", p.GRPC)}, nil
}

// rpcError is an error as grpc-go words it.
type rpcError struct {
	code grpcCode
	what string
}

// Error implements error.
func (e rpcError) Error() string {
	return fmt.Sprintf("rpc error: code = %s desc = %s", e.code, e.what)
}

// grpcCode is a status of gRPC (https://grpc.io/docs/guides/status-codes/).
type grpcCode uint32

// The codes that are given here.
const (
	codeUnknown          grpcCode = 2
	codeDeadlineExceeded grpcCode = 4
	codePermissionDenied grpcCode = 7
	codeUnimplemented    grpcCode = 12
	codeInternal         grpcCode = 13
	codeUnavailable      grpcCode = 14
	codeUnauthenticated  grpcCode = 16
)

var codeWords = [...]string{
	"OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists", "PermissionDenied", "ResourceExhausted",
	"FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal", "Unavailable", "DataLoss", "Unauthenticated",
}

// String is the code's word.
func (c grpcCode) String() string {
	if int64(c) < int64(len(codeWords)) {
		return codeWords[c]
	}
	return fmt.Sprintf("Code(%d)", uint32(c))
}

// servingStatus is grpc.health.v1.HealthCheckResponse.ServingStatus.
type servingStatus int32

const serving servingStatus = 1

var servingWords = [...]string{"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"}

// String is the status's word.
func (s servingStatus) String() string {
	if s >= 0 && int(s) < len(servingWords) {
		return servingWords[s]
	}
	return fmt.Sprint(int32(s))
}

// health is one call of grpc.health.v1.Health/Check.
func (c *caller) health(ctx context.Context, p *catalog.Probe, address, service string) (servingStatus, error) {
	conn, err := c.connect(ctx, p, address)
	if err != nil {
		return 0, unavailable(ctx, fmt.Sprintf("connection error: desc = \"transport: Error while dialing: %s\"", describe(err)))
	}
	defer conn.Close()
	req, err := newHealthRequest(ctx, address, p.UseTLS, service)
	if err != nil {
		return 0, rpcError{codeInternal, err.Error()}
	}
	resp, err := conn.RoundTrip(req)
	if err != nil {
		return 0, unavailable(ctx, noHTTP2)
	}
	defer resp.Body.Close()
	if err := refusedByHTTP(resp); err != nil {
		return 0, err
	}
	message, err := io.ReadAll(io.LimitReader(resp.Body, maxOutput)) // the trailer comes behind it
	if err != nil {
		return 0, unavailable(ctx, describe(err))
	}
	if err := refusedByGRPC(resp); err != nil {
		return 0, err
	}
	return decodeHealth(message)
}

// noHTTP2 is said of a connection that ends before the response begins. Which error the library returns for it depends on
// which of its goroutines sees the end first, and each other output is an entry of the log.
const noHTTP2 = `connection error: desc = "error reading server preface: the other side does not speak HTTP/2, or ended the connection"`

// unavailable is the error of a call that got no response.
func unavailable(ctx context.Context, what string) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return rpcError{codeDeadlineExceeded, ctx.Err().Error()}
	}
	return rpcError{codeUnavailable, what}
}

// newHealthRequest makes the request of a call, as
// https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md has it.
func newHealthRequest(ctx context.Context, address string, overTLS bool, service string) (*http.Request, error) {
	var message []byte
	if service != "" {
		message = protowire.AppendString(protowire.AppendTag(message, 1, protowire.BytesType), service)
	}
	body := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))) // 0: it is not compressed
	u := url.URL{Scheme: "http", Host: address, Path: "/grpc.health.v1.Health/Check"}
	if overTLS {
		u.Scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(append(body, message...)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("TE", "trailers")
	req.Header.Set("User-Agent", "Rollcall Health Check")
	return req, nil
}

// refusedByHTTP is the error of a response that is none of gRPC's; nil: it is one.
func refusedByHTTP(resp *http.Response) error {
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode == http.StatusOK && !strings.HasPrefix(kind, "application/grpc") {
		return rpcError{codeUnknown, fmt.Sprintf("unexpected HTTP status code received from server: 200 (OK); transport: received unexpected content-type %q", kind)}
	}
	code := codeUnknown
	switch resp.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusBadRequest:
		code = codeInternal
	case http.StatusUnauthorized:
		code = codeUnauthenticated
	case http.StatusForbidden:
		code = codePermissionDenied
	case http.StatusNotFound:
		code = codeUnimplemented
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		code = codeUnavailable
	}
	return rpcError{code, fmt.Sprintf("unexpected HTTP status code received from server: %d (%s)", resp.StatusCode, http.StatusText(resp.StatusCode))}
}

// refusedByGRPC is the error that the server returned, in the trailer or, without a message, in the header; nil: none.
func refusedByGRPC(resp *http.Response) error {
	from := resp.Trailer
	if resp.Header.Get("Grpc-Status") != "" {
		from = resp.Header
	}
	code, err := strconv.ParseUint(from.Get("Grpc-Status"), 10, 32)
	if err != nil {
		return rpcError{codeInternal, "server closed the stream without sending trailers"}
	}
	if code == 0 {
		return nil
	}
	what := from.Get("Grpc-Message")
	if text, err := url.PathUnescape(what); err == nil {
		what = text
	}
	return rpcError{grpcCode(code), what}
}

// decodeHealth reads a HealthCheckResponse behind its length.
func decodeHealth(message []byte) (servingStatus, error) {
	if len(message) < 5 || message[0] != 0 || uint64(binary.BigEndian.Uint32(message[1:])) != uint64(len(message)-5) {
		return 0, rpcError{codeInternal, fmt.Sprintf("the response of %d bytes is not one message that is not compressed", len(message))}
	}
	var status uint64
	for rest := message[5:]; len(rest) > 0; {
		number, kind, n := protowire.ConsumeTag(rest)
		if n >= 0 {
			rest = rest[n:]
			if number == 1 && kind == protowire.VarintType {
				status, n = protowire.ConsumeVarint(rest)
			} else {
				n = protowire.ConsumeFieldValue(number, kind, rest)
			}
		}
		if n < 0 {
			return 0, rpcError{codeInternal, "the response is not a HealthCheckResponse: " + protowire.ParseError(n).Error()}
		}
		rest = rest[n:]
	}
	return servingStatus(status), nil
}

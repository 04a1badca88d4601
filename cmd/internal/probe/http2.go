package probe

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
)

// A gRPC health check is one request with a message of one field. That takes little code over a net/http connection;
// google.golang.org/grpc would make the server a third larger (docs/dependencies.md).

// protocol is HTTP/2, as TLS negotiates it.
const protocol = "h2"

// connect opens an HTTP/2 connection: over TLS with ALPN, as gRPC demands, otherwise without asking whether the other
// side speaks HTTP/2 (RFC 9113, 3.3).
func (c *caller) connect(ctx context.Context, p *catalog.Probe, address string) (*http.ClientConn, error) {
	conn, err := c.dial(ctx, p, address, protocol)
	if err != nil {
		return nil, err
	}
	dialled := func(context.Context, string, string) (net.Conn, error) { return conn, nil }
	t := &http.Transport{Protocols: new(http.Protocols), DialContext: dialled, DialTLSContext: dialled, DisableCompression: true, MaxResponseHeaderBytes: maxHeader}
	t.Protocols.SetHTTP2(true)
	t.Protocols.SetUnencryptedHTTP2(true)
	h2, err := t.NewClientConn(ctx, scheme(p.UseTLS), address)
	if err != nil {
		conn.Close()
	}
	return h2, err
}

func scheme(overTLS bool) string {
	if overTLS {
		return "https"
	}
	return "http"
}

// ping passes if an HTTP/2 connection answers a PING frame. The texts are Consul's (agent/checks/check.go,
// CheckH2PING).
func (c *caller) ping(ctx context.Context, p *catalog.Probe, address string) (result, error) {
	conn, err := c.dial(ctx, p, address, protocol)
	if err != nil {
		return result{catalog.Critical, fmt.Sprintf("Failed to dial to %s: %s", address, describe(err))}, nil
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := pingOver(conn); err != nil {
		return result{catalog.Critical, "HTTP2 ping failed: " + describe(cmp.Or(context.Cause(ctx), err))}, nil
	}
	return result{catalog.Passing, "HTTP2 ping was successful"}, nil
}

// An HTTP/2 frame begins with nine bytes: three with the length of its content, one with the type, one with the flags
// and four with the stream (RFC 9113, 4.1). net/http's connections send no PING that a caller can wait for.
const (
	frameHeader  = 9
	maxFrame     = 1 << 14 // that a peer may send before it was told that larger ones are allowed
	settingsType = 4
	pingType     = 6
	ackFlag      = 1

	preface     = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	settings    = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	settingsAck = "\x00\x00\x00\x04\x01\x00\x00\x00\x00"
	pingHead    = "\x00\x00\x08\x06\x00\x00\x00\x00\x00"
	pingBody    = "rollcall"
)

// errNoHTTP2 is the error for a peer that sends what no HTTP/2 server does.
var errNoHTTP2 = errors.New("the other side does not speak HTTP/2")

// pingOver opens HTTP/2 on a connection, sends a PING and waits for its acknowledgment.
func pingOver(conn io.ReadWriter) error {
	if _, err := io.WriteString(conn, preface+settings+pingHead+pingBody); err != nil {
		return err
	}
	for first := true; ; first = false {
		var head [frameHeader]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return err
		}
		length := int(binary.BigEndian.Uint32(append([]byte{0}, head[:3]...)))
		kind, acks := head[3], head[4]&ackFlag != 0
		if length > maxFrame || first && (kind != settingsType || acks) {
			return errNoHTTP2
		}
		body := make([]byte, length)
		if _, err := io.ReadFull(conn, body); err != nil {
			return err
		}
		switch {
		case kind == pingType && acks && string(body) == pingBody:
			return nil
		case kind == settingsType && !acks:
			if _, err := io.WriteString(conn, settingsAck); err != nil {
				return err
			}
		}
	}
}

// grpc asks the health service of a gRPC server (https://github.com/grpc/grpc/blob/master/doc/health-checking.md)
// about the service that the check names, or about the server. Only SERVING passes. The texts come from Consul
// (agent/checks/grpc.go) and from grpc-go, whose errors Consul shows.
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

// rpcError is an error in the words of grpc-go.
type rpcError struct {
	code grpcCode
	what string
}

// Error implements error.
func (e rpcError) Error() string {
	return fmt.Sprintf("rpc error: code = %s desc = %s", e.code, e.what)
}

// grpcCode is a gRPC status (https://grpc.io/docs/guides/status-codes/).
type grpcCode uint32

// The codes that are returned here.
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

// String returns the code's name.
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

// String returns the status's name.
func (s servingStatus) String() string {
	if s >= 0 && int(s) < len(servingWords) {
		return servingWords[s]
	}
	return fmt.Sprint(int32(s))
}

// health makes one call of grpc.health.v1.Health/Check.
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
	if resp.ProtoMajor != 2 {
		return 0, unavailable(ctx, noHTTP2)
	}
	if err := refusedByHTTP(resp); err != nil {
		return 0, err
	}
	message, err := io.ReadAll(io.LimitReader(resp.Body, maxOutput)) // the trailer follows it
	if err != nil {
		return 0, unavailable(ctx, describe(err))
	}
	if err := refusedByGRPC(resp); err != nil {
		return 0, err
	}
	return decodeHealth(message)
}

// noHTTP2 is the text for a connection that ends before the response begins. The library's own error depends
// on which of its goroutines sees the end first, and each different output is an entry of the log.
const noHTTP2 = `connection error: desc = "error reading server preface: the other side does not speak HTTP/2, or ended the connection"`

// unavailable returns the error of a call that got no response.
func unavailable(ctx context.Context, what string) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return rpcError{codeDeadlineExceeded, ctx.Err().Error()}
	}
	return rpcError{codeUnavailable, what}
}

// newHealthRequest makes the request of a call as in https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md.
func newHealthRequest(ctx context.Context, address string, overTLS bool, service string) (*http.Request, error) {
	var message []byte
	if service != "" {
		message = protowire.AppendString(protowire.AppendTag(message, 1, protowire.BytesType), service)
	}
	body := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))) // 0 means not compressed
	u := url.URL{Scheme: scheme(overTLS), Host: address, Path: "/grpc.health.v1.Health/Check"}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(append(body, message...)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("TE", "trailers")
	req.Header.Set("User-Agent", userAgent)
	return req, nil
}

// refusedByHTTP returns the error of a response that is not gRPC's, or nil.
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

// refusedByGRPC returns the error that the server sent in the trailer or, without a message, in the header, or nil.
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

package replication

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/replication/batcher"
)

// maxEurekaAnswer bounds what is read of a Eureka server's answer: 250 instances at their largest.
const maxEurekaAnswer = 64 << 20

// eurekaAnswer is what a Eureka server answers.
type eurekaAnswer struct {
	status int
	body   []byte
}

func (a eurekaAnswer) ok() bool { return a.status/100 == 2 }

// ask makes one call below the service URL and reads the whole answer. Its error is a *callError that
// names the URL without user info.
func (l *eurekaLink) ask(ctx context.Context, replicated bool, method, target string, body []byte) (eurekaAnswer, error) {
	p := l.env.peer
	ctx, cancel := context.WithTimeout(ctx, p.ConnectTimeout+p.ReadTimeout)
	defer cancel()
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	r, err := http.NewRequestWithContext(ctx, method, l.url()+target, bytes.NewReader(body))
	if err != nil {
		return eurekaAnswer{}, &callError{batcher.PermanentError, err}
	}
	l.identify(r, replicated, len(body) > 0)
	answer, err := l.exchange(r)
	if err != nil {
		return eurekaAnswer{}, &callError{failureOf(err, connected.Load()), err}
	}
	return answer, nil
}

// identify sets the header fields by which Eureka servers know one another.
func (l *eurekaLink) identify(r *http.Request, replicated, body bool) {
	r.Header.Set("Accept", "application/json")
	if body {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("DiscoveryIdentity-Name", "DefaultServer")
	r.Header.Set("DiscoveryIdentity-Version", "1.0")
	if host, _, err := net.SplitHostPort(l.env.config.HTTP); err == nil {
		r.Header.Set("DiscoveryIdentity-Id", host)
	}
	if replicated {
		r.Header.Set("X-Netflix-Discovery-Replication", "true")
	}
	if l.user != nil {
		password, _ := l.user.Password()
		r.SetBasicAuth(l.user.Username(), password)
	}
}

var errAnswerTooLarge = errors.New("the answer is too large")

func (l *eurekaLink) exchange(r *http.Request) (eurekaAnswer, error) {
	resp, err := l.client.Do(r)
	if err != nil {
		return eurekaAnswer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxEurekaAnswer+1))
	if err != nil {
		return eurekaAnswer{}, fmt.Errorf("%s %s: the answer broke off: %w", r.Method, r.URL, err)
	}
	if len(body) > maxEurekaAnswer {
		return eurekaAnswer{}, fmt.Errorf("%s %s: %w", r.Method, r.URL, errAnswerTooLarge)
	}
	return eurekaAnswer{resp.StatusCode, body}, nil
}

// refusedCall is an answer that is not one of success.
func refusedCall(method, target string, a eurekaAnswer) error {
	result := batcher.PermanentError
	if a.status == http.StatusServiceUnavailable {
		result = batcher.Congestion
	}
	return &callError{result, fmt.Errorf("%s %s was answered %d %s", method, target, a.status, http.StatusText(a.status))}
}

// batchPath ends in a slash, as upstream's own servers write it.
const batchPath = "/peerreplication/batch/"

// sendBatch sends one document, in parts where it would get too large, and does what the answer asks
// for.
func (l *eurekaLink) sendBatch(ctx context.Context, all []eurekaPart) batcher.Result {
	items := make([]eureka.Item, len(all))
	for n := range all {
		items[n] = all[n].Item
	}
	body := eureka.AppendBatch(nil, items)
	if half := len(all) / 2; half > 0 && len(body) > maxEurekaDocument {
		if result := l.sendBatch(ctx, all[:half]); result != batcher.Success {
			return result
		}
		return l.sendBatch(ctx, all[half:])
	}
	results, err := l.exchangeBatch(ctx, body)
	if err != nil {
		l.env.failed(err)
		return resultOf(err)
	}
	if len(results) != len(all) {
		// Nobody can tell which answer belongs to which item. The next heartbeats will show what is missing.
		l.env.failed(fmt.Errorf("%d items were answered by %d results", len(all), len(results)))
		return batcher.Success
	}
	l.env.succeeded()
	l.analyse(ctx, all, results)
	return batcher.Success
}

func (l *eurekaLink) exchangeBatch(ctx context.Context, body []byte) ([]eureka.ItemResult, error) {
	answer, err := l.ask(ctx, true, http.MethodPost, batchPath, body)
	if err != nil {
		return nil, err
	}
	if !answer.ok() {
		return nil, refusedCall(http.MethodPost, batchPath, answer)
	}
	results, err := eureka.DecodeBatchResponse(answer.body)
	if err != nil {
		return nil, fmt.Errorf("the answer to a batch cannot be read: %w", err)
	}
	return results, nil
}

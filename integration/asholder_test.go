package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

// asHolder is set in the environment where this test program is started as the holder of a lock: its
// value is the base URL of a node. The holder creates a session of 3 s with a lock-delay of 1 s, renews
// it every second, and does what lines on its stdin say: "acquire NAME", "write NAME" (a key, guarded by
// the token of the acquisition), "release NAME". Each is answered by a line of JSON.
const asHolder = "ROLLCALL_AS_HOLDER"

// holderAnswer is what came of one line.
type holderAnswer struct {
	Error string `json:"error,omitempty"`
	Fence uint64 `json:"fence,omitempty"` // of the acquisition at hand
	OK    bool   `json:"ok"`
	// Sent is when the newest renewal that succeeded was sent (Unix nanoseconds; holder and test share a
	// clock): the holder believes to hold for its TTL from then on.
	Sent int64 `json:"sent,omitempty"`
}

func (a holderAnswer) failure() string { return a.Error }

// Of the holder's session.
const (
	holderTTL   = 3 * time.Second
	holderDelay = time.Second
)

type holder struct {
	base    string
	http    *http.Client
	session string
	fence   uint64
	sent    atomic.Int64
}

func runHolder(base string, in io.Reader, out io.Writer) error {
	h := &holder{base: base, http: &http.Client{Timeout: ReadyLimit}}
	if err := h.begin(); err != nil {
		return err
	}
	go h.renew()
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var do, name string
		if _, err := fmt.Sscan(lines.Text(), &do, &name); err != nil {
			return err
		}
		answer, err := h.do(do, name)
		if err != nil {
			answer.Error = err.Error()
		}
		answer.Sent = h.sent.Load()
		if err := json.NewEncoder(out).Encode(answer); err != nil {
			return err
		}
	}
	return nil
}

func (h *holder) begin() error {
	sent := time.Now()
	var created struct {
		ID string `json:"id"`
	}
	body := fmt.Sprintf(`{"name":"holder","ttl":%q,"lock_delay":%q}`, holderTTL, holderDelay)
	if err := h.call(http.MethodPost, "/v1/rollcall/sessions", body, &created); err != nil {
		return err
	}
	h.session = created.ID
	h.sent.Store(sent.UnixNano())
	return nil
}

// renew renews until the session is gone.
func (h *holder) renew() {
	for range time.Tick(time.Second) {
		sent := time.Now()
		if h.call(http.MethodPut, "/v1/rollcall/sessions/"+h.session+"/renew", "", nil) == nil {
			h.sent.Store(sent.UnixNano())
		}
	}
}

func (h *holder) do(do, name string) (answer holderAnswer, err error) {
	lock := "/v1/rollcall/locks/" + name + "?session=" + h.session
	switch do {
	case "acquire":
		var got struct {
			Acquired bool   `json:"acquired"`
			Fence    uint64 `json:"fence"`
		}
		if err = h.call(http.MethodPut, lock+"&wait=30s", "held", &got); err == nil && got.Acquired {
			h.fence = got.Fence
		}
		return holderAnswer{Fence: got.Fence, OK: got.Acquired}, err
	case "write":
		err = h.call(http.MethodPut, fmt.Sprintf("/v1/kv/guarded/%s?fence=%d&fence-lock=%s", name, h.fence, name), h.session, &answer.OK)
		answer.Fence = h.fence
		return answer, err
	case "release":
		var got struct {
			Released bool `json:"released"`
		}
		err = h.call(http.MethodDelete, fmt.Sprintf("%s&fence=%d", lock, h.fence), "", &got)
		return holderAnswer{Fence: h.fence, OK: got.Released}, err
	}
	return answer, fmt.Errorf("what is %q?", do)
}

// call performs a call and decodes its answer, which must be a 200. While there is no leader nothing takes
// effect, and it tries again.
func (h *holder) call(method, path, body string, into any) error {
	for deadline := time.Now().Add(ReadyLimit); ; time.Sleep(retryAfter) {
		status, err := h.callOnce(method, path, body, into)
		if status != http.StatusServiceUnavailable || time.Now().After(deadline) {
			return err
		}
	}
}

func (h *holder) callOnce(method, path, body string, into any) (status int, err error) {
	req, err := http.NewRequest(method, h.base+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, err
	}
	resp, err := h.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %d %s", method, path, resp.StatusCode, text)
	}
	if err != nil || into == nil {
		return resp.StatusCode, err
	}
	return resp.StatusCode, json.Unmarshal(text, into)
}

// holderProcess is a holder as a process of its own, which the test can pause.
type holderProcess = child[holderAnswer]

// startHolder starts a holder at a node.
func startHolder(t *testing.T, n *Node) *holderProcess {
	t.Helper()
	return startChild[holderAnswer](t, asHolder, n.URL())
}

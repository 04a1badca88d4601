package balance

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// content is a body that can be had only once.
type content struct {
	io.Reader
	closed int
}

func (c *content) Close() error {
	c.closed++
	return nil
}

func TestAStreamIsSentOnceAlthoughTheFirstIsDead(t *testing.T) {
	var got []string
	n := &network{hosts: map[string]func(*http.Request) (*http.Response, error){
		"h2:8080": func(r *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(r.Body)
			got = append(got, string(body))
			return &http.Response{StatusCode: 200, Body: http.NoBody}, err
		},
	}}
	body := &content{Reader: strings.NewReader("text")}
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://orders/", body)
	need.Got(list(instances("ORDERS", 3)...).transport(t, Config{Base: n, Picker: inTurn{}}).RoundTrip(r))(t)
	expect.That(t, len(got) == 1 && got[0] == "text" && body.closed == 1,
		"the instance got %q, the body was closed %d times; want it sent and closed once", got, body.closed)
}

// TestABodyThatWasReadIsNotSentAgain: whoever reads it before it connects has used it up.
func TestABodyThatWasReadIsNotSentAgain(t *testing.T) {
	n := &network{hosts: map[string]func(*http.Request) (*http.Response, error){
		"h0:8080": func(r *http.Request) (*http.Response, error) {
			io.CopyN(io.Discard, r.Body, 1)
			return nil, refused()
		},
		"h1:8080": ok,
	}}
	body := &content{Reader: strings.NewReader("text")}
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://orders/", body)
	_, err := list(instances("ORDERS", 2)...).transport(t, Config{Base: n, Picker: inTurn{}}).RoundTrip(r)
	asked := n.took()
	expect.That(t, err != nil && len(asked) == 1 && body.closed == 1,
		"asked %v, %v, closed %d times; want an error of the first only", asked, err, body.closed)
}

func TestABodyThatCanBeHadAgainIsAskedForAgain(t *testing.T) {
	for _, fails := range []bool{false, true} {
		n := &network{hosts: map[string]func(*http.Request) (*http.Response, error){
			"h0:8080": func(r *http.Request) (*http.Response, error) {
				io.Copy(io.Discard, r.Body)
				return nil, refused()
			},
			"h1:8080": ok,
		}}
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://orders/", strings.NewReader("text"))
		spent := errors.New("spent")
		if fails {
			r.GetBody = func() (io.ReadCloser, error) { return nil, spent }
		}
		resp, err := list(instances("ORDERS", 2)...).transport(t, Config{Base: n, Picker: inTurn{}}).RoundTrip(r)
		if fails {
			expect.That(t, errors.Is(err, spent), "got %v, want why the body cannot be had again", err)
			continue
		}
		expect.That(t, err == nil && read(t, resp) == "text", "the second instance did not get the whole body: %v", err)
	}
}

func TestABodyIsClosedWhenNobodyWasReached(t *testing.T) {
	body := &content{Reader: strings.NewReader("text")}
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://orders/", body)
	_, err := list(instances("ORDERS", 2)...).transport(t, Config{Base: &network{}}).RoundTrip(r)
	expect.That(t, err != nil, "no error")
	expect.That(t, body.closed == 1, "the body was closed %d times, want once", body.closed)
}

// TestATryThatIsOverTouchesTheBodyNoMore: a Base may close what it got later, from another goroutine.
func TestATryThatIsOverTouchesTheBodyNoMore(t *testing.T) {
	body := &content{Reader: strings.NewReader("text")}
	over := &loan{body: body}
	need.That(t, over.end(), "a body that nobody read cannot be lent again")
	for _, when := range []string{"before", "after"} {
		n, err := over.Read(make([]byte, 4))
		expect.That(t, n == 0 && err != nil, "%s its Close the try that is over read %d bytes, %v", when, n, err)
		over.Close()
	}
	kept := &loan{body: body}
	kept.settle()
	if text, err := io.ReadAll(kept); string(text) != "text" || err != nil {
		t.Errorf("the next try read %q, %v", text, err)
	}
	expect.That(t, body.closed == 0, "the body was closed by the try that is over")
	kept.Close()
	kept.Close()
	expect.That(t, body.closed == 1, "closed %d times, want once", body.closed)
}

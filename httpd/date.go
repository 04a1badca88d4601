package httpd

import (
	"net/http"
	"sync/atomic"
	"time"
)

// lastDate is the newest Date field, for all connections: it is the same for a second.
var lastDate atomic.Pointer[datedText]

type datedText struct {
	second int64
	text   string
}

// httpDate formats a time for the Date field.
func httpDate(now time.Time) string {
	second := now.Unix()
	if d := lastDate.Load(); d != nil && d.second == second {
		return d.text
	}
	d := &datedText{second: second, text: now.UTC().Format(http.TimeFormat)}
	lastDate.Store(d)
	return d.text
}

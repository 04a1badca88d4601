package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestTheBareHandlerAnswersPutsAndPayloads(t *testing.T) {
	h := new(bareHandler)
	for _, tc := range []struct {
		method, path string
		status, body int
	}{
		{http.MethodPut, "/eureka/apps/A/a?status=UP", 200, 0},
		{http.MethodGet, barePath(0), 200, 0},
		{http.MethodGet, barePath(70_000), 200, 70_000},
		{http.MethodGet, barePath(70_000), 200, 70_000},
		{http.MethodGet, "/bytes/-1", 404, 0},
		{http.MethodGet, "/bytes/" + "9999999999999", 404, 0},
		{http.MethodGet, "/", 404, 0},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(tc.method, tc.path, nil))
		if w.Code != tc.status || tc.status == 200 && w.Body.Len() != tc.body {
			t.Errorf("%s %s: status %d and %d bytes, want %d and %d", tc.method, tc.path, w.Code, w.Body.Len(), tc.status, tc.body)
		}
	}
}

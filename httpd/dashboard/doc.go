// Package dashboard is what people see of a node in a browser: what is wrong, what is registered and why, and forms to
// act.
//
// The server renders the pages, which work without a script; with one they show changes as they happen. Whatever a
// page does is a call of an API, just as on the command line. Its files:
//
//	dashboard.go  the routes, and what all pages need
//	frame.go      what surrounds every page
//	truth.go      the status line, worst first
//	overview.go   figures, what needs attention, and the first steps
//	document.go   the same for programs
//	apps.go, app.go, search.go  applications and their instances
//	nodes.go, peers.go, held.go  nodes, replication, locks and keys
//	timeline.go   what happened
//	acts.go       what pages can do, and its effects
//	actpages.go   their buttons and forms, and what is said afterwards
//	keyform.go    the form that changes a key
//	perform.go    calls of the APIs in the reader's name
//	login.go      a login by a token
//	live.go       the stream that says when a page must be rebuilt
//	monitor.go, history.go, tally.go  what is kept ready, so that pages walk no registry and wait for no other node
//	elements.go   pieces of HTML
//	assets.go     the style, the script and the icon
package dashboard

// Package dashboard is what people see of a node in a browser: what is wrong, what is registered and why, and forms to act.
//
// The pages are made by the server and work without a script; with one they show changes as they happen. What a page does is a
// call of an API, as the command line does it. Its files:
//
//	dashboard.go  the routes, and what all pages need
//	frame.go      what is around every page
//	truth.go      the one line of state, worst first
//	overview.go   figures, what needs attention, and the first steps
//	document.go   the same for programs
//	apps.go, app.go, search.go  applications and their instances
//	nodes.go, peers.go, held.go  nodes, replication, locks and keys
//	timeline.go   what happened
//	acts.go       what pages can do, and what follows of it
//	actpages.go   the buttons and the forms of it, and what is said afterwards
//	keyform.go    the form that changes a key
//	perform.go    calls of the APIs in the reader's name
//	login.go      a login by a token
//	live.go       the stream that says when a page is to be made again
//	monitor.go, history.go, tally.go  what is kept ready, so that a page that is read walks no registry and waits for no other node
//	elements.go   pieces of HTML
//	assets.go     the style, the script and the icon
package dashboard

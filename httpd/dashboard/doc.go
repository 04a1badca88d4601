// Package dashboard is what an operator sees of a node in a browser: the front page and the page of the last events.
//
// The pages load nothing and run no script. Its files:
//
//	dashboard.go what the pages show, taken from the registry and the node
//	peers.go     the peers on the front page
//	pages.go     the pages in HTML, with assets/style.css in them
package dashboard

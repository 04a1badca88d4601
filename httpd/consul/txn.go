package consul

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// maxTxnOps is how many operations a transaction may have.
const maxTxnOps = 128

// verbWords are the words for what an operation of a transaction does to keys.
var verbWords = [...]string{
	kv.Set: "set", kv.CAS: "cas", kv.Acquire: "lock", kv.Release: "unlock",
	kv.Get: "get", kv.GetOrEmpty: "get-or-empty", kv.GetTree: "get-tree",
	kv.CheckIndex: "check-index", kv.CheckSession: "check-session", kv.CheckNotExists: "check-not-exists",
	kv.Delete: "delete", kv.DeleteCAS: "delete-cas", kv.DeleteTree: "delete-tree",
}

// catalogVerbWords are the words for what it does to nodes, services and checks.
var catalogVerbWords = [...]string{
	registry.CatalogGet: "get", registry.CatalogSet: "set", registry.CatalogCAS: "cas",
	registry.CatalogDelete: "delete", registry.CatalogDeleteCAS: "delete-cas",
}

// txnBody is one operation of a transaction. One member is given; if several are, the first in this order counts.
type txnBody struct {
	KV                            *keyOpBody
	Node, Service, Check, Session json.RawMessage
}

type keyOpBody struct {
	Verb, Key, Session   string
	Namespace, Partition string
	Value                []byte // in base64
	Flags                uint64
	Index                kv.Index
}

// decodeTxn reads a transaction. Operations that every replica would refuse, whatever its state, come back as errs;
// then the transaction must not be performed. Errors: a refusal.
func decodeTxn(body []byte, at place) (txn kv.Txn, errs []kv.TxnError, err error) {
	var given []txnBody
	if err := json.Unmarshal(body, &given); err != nil {
		return txn, nil, malformed("Failed to parse body: %v", err)
	}
	if len(given) > maxTxnOps {
		return txn, nil, &web.Refusal{Status: http.StatusRequestEntityTooLarge,
			Text: fmt.Sprintf("Transaction contains too many operations (%d > %d)", len(given), maxTxnOps)}
	}
	txn.Ops = make([]kv.TxnOp, len(given))
	for i := range given {
		var failed txnFailure
		op, err := given[i].op(at)
		switch {
		case errors.As(err, &failed):
			errs = append(errs, kv.TxnError{OpIndex: i, What: string(failed)})
		case err != nil:
			return kv.Txn{}, nil, undecodable("Failed to parse body", err)
		}
		txn.Ops[i] = op
	}
	return txn, errs, nil
}

// txnFailure says why an operation fails, in the words of the transaction's response.
type txnFailure string

// Error implements error.
func (f txnFailure) Error() string { return string(f) }

// op returns the operation. Errors: txnFailure, a refusal, or that of the decoder.
func (b *txnBody) op(at place) (kv.TxnOp, error) {
	switch {
	case b.KV != nil:
		return b.KV.op()
	case isGiven(b.Node):
		return catalogOp(b.Node, new(txnNode), at)
	case isGiven(b.Service):
		return catalogOp(b.Service, new(txnService), at)
	case isGiven(b.Check):
		return catalogOp(b.Check, new(txnCheck), at)
	case isGiven(b.Session):
		return sessionOp(b.Session)
	}
	return kv.TxnOp{}, txnFailure("unknown operation type")
}

func isGiven(member json.RawMessage) bool { return member != nil && string(member) != "null" }

func (b *keyOpBody) op() (kv.TxnOp, error) {
	if err := inDefault(b.Namespace, b.Partition); err != nil {
		return kv.TxnOp{}, err
	}
	verb := slices.Index(verbWords[:], b.Verb)
	switch {
	case b.Key == "" && kv.Verb(verb) != kv.DeleteTree:
		return kv.TxnOp{}, txnFailure("Must provide key")
	case verb < 0:
		return kv.TxnOp{}, txnFailure("unknown KV operation: " + b.Verb)
	}
	return kv.TxnOp{Key: &kv.KeyOp{Verb: kv.Verb(verb), Key: b.Key, Value: b.Value, Flags: b.Flags, Index: b.Index, Session: b.Session}}, nil
}

func sessionOp(body []byte) (op kv.TxnOp, err error) {
	var verb string
	var session json.RawMessage
	if err := decodeFields(body, map[string]any{"verb": &verb, "session": &session}); err != nil {
		return op, err
	}
	if isGiven(session) {
		if err := decodeFields(session, map[string]any{"id": &op.Session}); err != nil {
			return op, err
		}
	}
	switch {
	case verb != "delete":
		return kv.TxnOp{}, txnFailure("unknown session operation: " + verb)
	case op.Session == "":
		return kv.TxnOp{}, txnFailure("missing session")
	}
	return op, nil
}

// txnObject is a node, service or check in an operation of a transaction.
type txnObject interface {
	// decode reads the operation's fields, and returns the verb's word.
	decode(body []byte) (verb string, err error)
	// kind names the object in the error for an unknown verb.
	kind() string
	// target returns what the operation is about.
	target(verb registry.CatalogVerb) (registry.CatalogOp, error)
	// register returns what a setting operation registers.
	register(node string, at place) (registry.RegisterCatalog, error)
}

// catalogOp returns an operation on an object.
func catalogOp(body []byte, object txnObject, at place) (kv.TxnOp, error) {
	word, err := object.decode(body)
	if err != nil {
		return kv.TxnOp{}, err
	}
	verb := slices.Index(catalogVerbWords[:], word)
	if verb < 0 {
		return kv.TxnOp{}, txnFailure(fmt.Sprintf("unknown %s operation: %s", object.kind(), word))
	}
	op, err := object.target(registry.CatalogVerb(verb))
	if err != nil {
		return kv.TxnOp{}, err
	}
	op.Verb = registry.CatalogVerb(verb)
	if op.Verb == registry.CatalogSet || op.Verb == registry.CatalogCAS {
		given, err := object.register(op.Node, at)
		if err != nil {
			return kv.TxnOp{}, txnFailure(err.Error()) // it is a refusal, whose text is about this object alone
		}
		op.Register = &given
	}
	return kv.TxnOp{Catalog: &op}, nil
}

var errNoNode = txnFailure("Must provide node")

// onNode registers something on a node and leaves the node itself unchanged.
func onNode(node string) registry.RegisterCatalog {
	op := registry.RegisterCatalog{KeepNode: true}
	if node != "" {
		op.Node = &catalog.Node{Name: node}
	}
	return op
}

// txnNode is a node in an operation of a transaction.
type txnNode struct {
	registrationBody
	modified registry.Index
}

func (n *txnNode) kind() string { return "node" }

func (n *txnNode) decode(body []byte) (verb string, err error) {
	var node json.RawMessage
	if err := decodeFields(body, map[string]any{"verb": &verb, "node": &node}); err != nil || !isGiven(node) {
		return verb, err
	}
	return verb, decodeFields(node, map[string]any{
		"id": &n.id, "node": &n.node, "address": &n.address, "datacenter": &n.datacenter, "taggedaddresses": &n.tagged, "meta": &n.meta,
		"modifyindex": &n.modified,
	})
}

func (n *txnNode) target(registry.CatalogVerb) (op registry.CatalogOp, err error) {
	if n.node == "" {
		return op, errNoNode
	}
	return registry.CatalogOp{Node: nodeOf(n.node), Index: n.modified}, nil
}

func (n *txnNode) register(_ string, at place) (op registry.RegisterCatalog, err error) {
	if n.datacenter != "" && n.datacenter != at.Datacenter {
		return op, malformed("node %q is of datacenter %q, and this one is %q", n.node, n.datacenter, at.Datacenter)
	}
	op.Node = n.nodeOf()
	return op, cmp.Or(checkName("node name", n.node), n.checkID())
}

// txnService is a service in an operation of a transaction.
type txnService struct {
	serviceBody
	node     string
	modified registry.Index
}

func (s *txnService) kind() string { return "service" }

func (s *txnService) decode(body []byte) (verb string, err error) {
	var service json.RawMessage
	if err := decodeFields(body, map[string]any{"verb": &verb, "node": &s.node, "service": &service}); err != nil || !isGiven(service) {
		return verb, err
	}
	if err := s.serviceBody.UnmarshalJSON(service); err != nil {
		return verb, err
	}
	return verb, decodeFields(service, map[string]any{"modifyindex": &s.modified})
}

// target requires the name for all verbs but get, as Consul does.
func (s *txnService) target(verb registry.CatalogVerb) (op registry.CatalogOp, err error) {
	id := s.id
	if verb.Writes() {
		id = cmp.Or(id, s.service)
	}
	switch {
	case s.node == "":
		return op, errNoNode
	case verb.Writes() && id == "":
		return op, txnFailure("service name (Service.Service) is required; both Service ID (Service.ID) and Service Name cannot be empty")
	case verb.Writes() && s.service == "":
		return op, txnFailure("Must provide service name (Service.Service) when service ID is provided")
	case id == "":
		return op, txnFailure(fmt.Sprintf("service %q on node %q doesn't exist", id, s.node))
	}
	return registry.CatalogOp{Node: nodeOf(s.node), Service: id, Index: s.modified}, nil
}

func (s *txnService) register(node string, at place) (op registry.RegisterCatalog, err error) {
	op = onNode(node)
	placed, address := registrationBody{service: &s.serviceBody}, ""
	// the state knows another node's address, which may differ from what this node knows when a client tries again
	if node == "" {
		address = at.Address
	}
	op.Service, op.Instance, err = placed.serviceOn(node, address)
	return op, err
}

// txnCheck is a check in an operation of a transaction.
type txnCheck struct {
	catalogCheckBody
	modified registry.Index
}

func (c *txnCheck) kind() string { return "check" }

func (c *txnCheck) decode(body []byte) (verb string, err error) {
	var check json.RawMessage
	if err := decodeFields(body, map[string]any{"verb": &verb, "check": &check}); err != nil || !isGiven(check) {
		return verb, err
	}
	if err := c.catalogCheckBody.UnmarshalJSON(check); err != nil {
		return verb, err
	}
	return verb, decodeFields(check, map[string]any{"modifyindex": &c.modified})
}

func (c *txnCheck) target(verb registry.CatalogVerb) (op registry.CatalogOp, err error) {
	id := c.checkID
	if verb.Writes() {
		id = cmp.Or(id, c.name)
	}
	switch {
	case c.node == "":
		return op, errNoNode
	case id == "" && verb.Writes():
		return op, txnFailure("Must provide check id (Check.CheckID) or name (Check.Name)")
	case id == "":
		return op, txnFailure(fmt.Sprintf("check %q on node %q doesn't exist", id, c.node))
	}
	return registry.CatalogOp{Node: nodeOf(c.node), Check: id, Index: c.modified}, nil
}

func (c *txnCheck) register(node string, _ place) (op registry.RegisterCatalog, err error) {
	op = onNode(node)
	check, err := c.check(node)
	op.Checks = []*catalog.Check{check}
	return op, err
}

// txnResponse is the response to a transaction.
type txnResponse struct {
	Results []txnResult
	Errors  []kv.TxnError
}

// txnResult is what one operation of a transaction found or made: exactly one member is set.
type txnResult struct {
	KV      *pair        `json:",omitempty"`
	Node    *listedNode  `json:",omitempty"`
	Service *nodeService `json:",omitempty"`
	Check   *listedCheck `json:",omitempty"`
}

// txnResult returns one result of a transaction, in the order of its operations.
func (h place) txnResult(r kv.Result, i int) txnResult {
	place := func(found int) int { return found + r.Found[found].Pairs }
	before := sort.Search(len(r.Found), func(found int) bool { return place(found) >= i })
	if before < len(r.Found) && place(before) == i {
		return h.found(&r.Found[before].Found)
	}
	pair := showPair(r.Pairs[i-before])
	return txnResult{KV: &pair}
}

// found shows what one operation found. Missing tags are null here, as in Consul, whose lists have [].
func (h place) found(f *registry.Found) txnResult {
	switch {
	case f.Node != nil:
		node := h.node(f.Node)
		return txnResult{Node: &node}
	case f.Service != nil:
		service := serviceOf(f.Service, f.Name).onNode()
		if len(service.Tags) == 0 {
			service.Tags = nil
		}
		return txnResult{Service: &service}
	}
	check := serfHealth
	// otherwise nobody has registered it
	if f.Check.ID != catalog.SerfHealth || f.Check.CreateIndex != check.CreateIndex {
		check = checkOf(f.Check)
		check.ServiceName, check.ServiceTags = f.Name, f.Tags
	}
	return txnResult{Check: &check}
}

// txn is PUT txn: operations on keys, sessions, nodes, services and checks, all or none.
func (c call) txn() (any, error) {
	body, err := c.readValue()
	if err != nil {
		return nil, err
	}
	txn, errs, err := decodeTxn(body, c.home(""))
	switch {
	case err != nil:
		return nil, err
	case len(errs) > 0:
		return c.respondTxn(place{}, kv.Result{Errors: errs})
	}
	if err := c.spellNodes(txn.Ops); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(txn.Ops, kv.TxnOp.Writes) {
		return c.readTxn(txn.Ops)
	}
	if err := c.checkRegistrations(txn); err != nil {
		return nil, err
	}
	result, err := c.performOnce(txn)
	if err != nil {
		return nil, err
	}
	if err := excesses[result.Excess]; err != nil {
		return nil, err
	}
	return c.respondTxn(c.home(c.Epoch()), result)
}

// checkRegistrations refuses registrations that would be refused outside a transaction before they are ordered.
func (c call) checkRegistrations(txn kv.Txn) error {
	for _, op := range txn.Ops {
		if op.Catalog == nil || op.Catalog.Register == nil {
			continue
		}
		given := *op.Catalog.Register
		if given.Instance != nil {
			if err := c.CheckQuota(c.R.Context(), given.Instance.Key()); err != nil {
				return err
			}
		}
		if err := c.checkProbes(given); err != nil {
			return err
		}
	}
	return nil
}

// excesses are the errors of transactions that read too much.
var excesses = map[kv.Excess]error{
	kv.TooLarge: &web.Refusal{
		Status: http.StatusRequestEntityTooLarge,
		Text:   fmt.Sprintf("the transaction was not performed: what it reads has more than %d bytes, the most that a transaction which also writes may read; read by a transaction of its own", kv.MaxTxnRead),
	},
	kv.TooBusy: &web.Refusal{
		Status: http.StatusServiceUnavailable, Retry: true,
		Text: "the transaction was not performed: it and others at the same time read too much together; try again",
	},
	kv.Forgotten: &web.Refusal{
		Status: http.StatusGone,
		Text:   "the transaction was performed, but its answer was asked for again, and what it read was too much to be kept until now; read again",
	},
}

// readTxn responds to a transaction that writes nothing as to any other read, but cannot wait for a change.
func (c call) readTxn(ops []kv.TxnOp) (any, error) {
	if err := c.Allow(kv.Needs(kv.Txn{Ops: ops}, web.StaleView(c.Service))...); err != nil {
		return nil, err
	}
	return c.readConsul(web.Query{Read: c.consulFreshness()}, false, c.KVSource(kv.Topic{}, func(v *kv.View) web.Found {
		return web.Found{Document: func() (any, error) {
			result := v.Read(ops)
			if result.Excess != kv.NoExcess {
				return nil, errReadTooLarge
			}
			return c.respondTxn(c.home(v.Registry.Epoch()), result)
		}}
	}))
}

// respondTxn responds with the outcome of a transaction; home shows the logical node.
func (c call) respondTxn(home place, result kv.Result) (any, error) {
	if len(result.Errors) > 0 {
		c.Status = http.StatusConflict
		return txnResponse{Errors: result.Errors}, nil
	}
	count := len(result.Pairs) + len(result.Found)
	if result.Weight() >= maxWhole {
		return c.respondLarge(txnList(count, func(i int) any { return c.seenResult(home.txnResult(result, i)) }))
	}
	done := txnResponse{Results: make([]txnResult, count)}
	for i := range done.Results {
		done.Results[i] = c.seenResult(home.txnResult(result, i))
	}
	return done, nil
}

// seenResult returns a result of a transaction as the caller may see it.
func (c call) seenResult(r txnResult) txnResult {
	if r.Check == nil {
		return r
	}
	app := strings.ToUpper(r.Check.ServiceName)
	if r.Check.follows {
		app = web.Everything
	}
	if !c.ShowsAnswers(web.StaleView(c.Service), app) {
		public := r.Check.public()
		r.Check = &public
	}
	return r
}

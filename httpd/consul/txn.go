package consul

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// MaxTxnOps is how many operations a transaction may have.
const MaxTxnOps = 128

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

// TooManyOps says that a transaction has more operations than MaxTxnOps. Consul's agent answers 413 with this text.
type TooManyOps string

// Error implements error.
func (t TooManyOps) Error() string { return string(t) }

// Place is what a transaction needs to know of where it is decoded.
type Place struct {
	Datacenter string
	Address    string // of the logical node
}

// DecodeTxn reads a transaction. What every replica would refuse, whatever its state, comes back as errs; then
// the transaction must not be performed. Errors: Malformed, TooManyOps.
func DecodeTxn(body []byte, at Place) (txn kv.Txn, errs []kv.TxnError, err error) {
	var given []txnBody
	if err := json.Unmarshal(body, &given); err != nil {
		return txn, nil, malformed("Failed to parse body: %v", err)
	}
	if len(given) > MaxTxnOps {
		return txn, nil, TooManyOps(fmt.Sprintf("Transaction contains too many operations (%d > %d)", len(given), MaxTxnOps))
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

// txnFailure is why an operation fails, in the words of the transaction's response.
type txnFailure string

// Error implements error.
func (f txnFailure) Error() string { return string(f) }

// op returns the operation. Errors: txnFailure, Malformed, or that of the decoder.
func (b *txnBody) op(at Place) (kv.TxnOp, error) {
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
	register(node string, at Place) (registry.RegisterCatalog, error)
}

// catalogOp returns an operation on an object.
func catalogOp(body []byte, object txnObject, at Place) (kv.TxnOp, error) {
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
			return kv.TxnOp{}, failureOf(err)
		}
		op.Register = &given
	}
	return kv.TxnOp{Catalog: &op}, nil
}

// failureOf turns an error about one object into the failure of its operation.
func failureOf(err error) error {
	if malformed, ok := errors.AsType[Malformed](err); ok {
		return txnFailure(malformed)
	}
	if rejected, ok := errors.AsType[Rejected](err); ok {
		return txnFailure(rejected)
	}
	return err
}

var errNoNode = txnFailure("Must provide node")

// onNode registers something on a node and leaves the node as it is.
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
	return registry.CatalogOp{Node: NodeOf(n.node), Index: n.modified}, nil
}

func (n *txnNode) register(_ string, at Place) (op registry.RegisterCatalog, err error) {
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
	return registry.CatalogOp{Node: NodeOf(s.node), Service: id, Index: s.modified}, nil
}

func (s *txnService) register(node string, at Place) (op registry.RegisterCatalog, err error) {
	op = onNode(node)
	placed, address := registrationBody{service: &s.serviceBody}, ""
	if node == "" { // of another one the state knows the address, and what is known of it here may be another when a client tries again
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
	return registry.CatalogOp{Node: NodeOf(c.node), Check: id, Index: c.modified}, nil
}

func (c *txnCheck) register(node string, _ Place) (op registry.RegisterCatalog, err error) {
	op = onNode(node)
	check, err := c.check(node)
	op.Checks = []*catalog.Check{check}
	return op, err
}

// TxnResponse is the response to a transaction.
type TxnResponse struct {
	Results []TxnResult
	Errors  []TxnError
}

// TxnResult is what one operation of a transaction found or made: one of the members.
type TxnResult struct {
	KV      *Pair        `json:",omitempty"`
	Node    *Node        `json:",omitempty"`
	Service *NodeService `json:",omitempty"`
	Check   *Check       `json:",omitempty"`
}

// TxnError is why one operation of a transaction failed.
type TxnError struct {
	OpIndex int
	What    string
}

// ShowTxn returns the response to a transaction that succeeded, or failed.
func (h Home) ShowTxn(r kv.Result) TxnResponse {
	if len(r.Errors) > 0 {
		failed := TxnResponse{}
		for _, e := range r.Errors {
			failed.Errors = append(failed.Errors, TxnError(e))
		}
		return failed
	}
	done := TxnResponse{Results: make([]TxnResult, TxnResults(r))}
	for i := range done.Results {
		done.Results[i] = h.TxnResult(r, i)
	}
	return done
}

// TxnResults returns how many results a transaction has.
func TxnResults(r kv.Result) int { return len(r.Pairs) + len(r.Found) }

// TxnResult returns one result of a transaction, in the order of its operations.
func (h Home) TxnResult(r kv.Result, i int) TxnResult {
	place := func(found int) int { return found + r.Found[found].Pairs }
	before := sort.Search(len(r.Found), func(found int) bool { return place(found) >= i })
	if before < len(r.Found) && place(before) == i {
		return h.found(&r.Found[before].Found)
	}
	pair := ShowPair(r.Pairs[i-before])
	return TxnResult{KV: &pair}
}

// found shows what one operation found. Missing tags are null here, as in Consul, whose lists have [].
func (h Home) found(f *registry.Found) TxnResult {
	switch {
	case f.Node != nil:
		node := h.Node(f.Node)
		return TxnResult{Node: &node}
	case f.Service != nil:
		service := ServiceOf(f.Service, f.Name).OnNode()
		if len(service.Tags) == 0 {
			service.Tags = nil
		}
		return TxnResult{Service: &service}
	}
	check := serfHealth
	if f.Check.ID != catalog.SerfHealth || f.Check.CreateIndex != check.CreateIndex { // else nobody has registered it
		check = checkOf(f.Check)
		check.ServiceName, check.ServiceTags = f.Name, f.Tags
	}
	return TxnResult{Check: &check}
}

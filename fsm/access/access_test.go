package access

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestRuleIsReadAndWrittenAlike(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"app ORDERS read,register", "app ORDERS read,register"},
		{"app orders register,read", "app ORDERS read,register"},
		{"app pay-* override", "app PAY-* override"},
		{"app {app} register", "app {app} register"},
		{"kv orders/ read,write", "kv orders/ read,write"},
		{"kv orders/* read", "kv orders/ read"},
		{"kv * read", "kv * read"},
		{"lock jobs/{app} write", "lock jobs/{app} write"},
		{"session write", "session write"},
		{"operator read,write", "operator read,write"},
		{"peer dc2 exchange", "peer dc2 exchange"},
		{"peer dc2 takeover,exchange", "peer dc2 exchange,takeover"},
		{"check-target 10.0.0.0/8:* probe", "check-target 10.0.0.0/8:* probe"},
	} {
		rule, err := ParseRule(tc.text)
		need.OKf(t, err, "%s", tc.text)
		expect.Equal(t, rule.String(), tc.want, tc.text)
	}
	for _, bad := range []string{
		"", "app", "app ORDERS", "app ORDERS write", "app A*B read", "apps A read", "session a write", "operator probe",
		"kv {key} read", "app ORDERS read,", "app ORDERS read register", "peer dc2 read", "app a\x01b read", "app " + strings.Repeat("A", maxMatch+1) + " read",
	} {
		expect.That(t, expect.Err(ParseRule(bad)) != nil, "rule %q is taken", bad)
	}
}

// TestPolicyDecidesAsReadingItsRules compares decisions with a walk over all rules.
func TestPolicyDecidesAsReadingItsRules(t *testing.T) {
	names := rapid.StringMatching(`[AB]{0,4}`)
	rapid.Check(t, func(t *rapid.T) {
		var rules []Rule
		for range rapid.IntRange(0, 12).Draw(t, "rules") {
			r := Rule{Resource: rapid.SampledFrom([]Resource{App, KV, Lock, Peer, Operator}).Draw(t, "resource")}
			kind := kinds[r.Resource]
			if kind.matching != unnamed {
				r.Match = names.Draw(t, "match")
			}
			if kind.matching == byName && (r.Match == "" || rapid.Bool().Draw(t, "open")) {
				r.Match += "*"
			}
			for r.Verbs == 0 {
				r.Verbs = kind.verbs & Verbs(rapid.ByteRange(1, 127).Draw(t, "verbs"))
			}
			need.OK(t, r.validate())
			rules = append(rules, r)
		}
		p := Compile("", &Role{Name: "r", Rules: rules})
		for range 20 {
			n := Need{Resource: rapid.SampledFrom([]Resource{App, KV, Lock, Peer, Operator}).Draw(t, "resource"), Verb: 1 << rapid.IntRange(0, 5).Draw(t, "verb")}
			if kinds[n.Resource].matching != unnamed {
				n.Name, n.Below = names.Draw(t, "name"), rapid.Bool().Draw(t, "below")
			}
			want := false
			for _, r := range rules {
				if r.Resource != n.Resource || r.Verbs&n.Verb == 0 {
					continue
				}
				prefix, open := strings.CutSuffix(r.Match, "*")
				if open || kinds[r.Resource].matching != byName {
					want = want || strings.HasPrefix(n.Name, prefix)
				} else {
					want = want || n.Name == r.Match && !n.Below && n.Name != ""
				}
			}
			need.Equal(t, p.Allows(n), want, "%v, by %v: allowed is", n, rules)
		}
	})
}

func TestParameterOfARoleIsThatOfTheToken(t *testing.T) {
	service := &Role{Name: "service", Rules: rules(t, "app {app} register", "app * read", "kv {app}/ write")}
	of := func(app string) *Policy { return Compile(app, service) }
	may := func(p *Policy, n Need) bool { return p.Allows(n) }
	expect.That(t, may(of("orders"), Need{Resource: App, Name: "ORDERS", Verb: Register}), "a service may not register itself")
	expect.That(t, !may(of("orders"), Need{Resource: App, Name: "PAY", Verb: Register}), "a service may register another")
	expect.That(t, may(of("orders"), Need{Resource: KV, Name: "orders/a", Verb: Write}), "a service may not write its keys")
	expect.That(t, !may(of(""), Need{Resource: App, Name: "", Verb: Register}), "a token without the parameter may register all")
	expect.That(t, !may(of(""), Need{Resource: KV, Name: "/a", Verb: Write}), "a token without the parameter may write keys")
	expect.That(t, may(of(""), Need{Resource: App, Name: "", Verb: Read}), "a token without the parameter may not read")
	var nobody *Policy
	expect.That(t, !nobody.Allows(Need{Resource: App, Name: "A", Verb: Read}), "no policy allows something")
}

func rules(t testing.TB, texts ...string) (all []Rule) {
	t.Helper()
	for _, text := range texts {
		all = append(all, need.Got(ParseRule(text))(t))
	}
	return all
}

func random(t testing.TB) (b [RandomBytes]byte) {
	t.Helper()
	need.OK(t, second(rand.Read(b[:])))
	return b
}

func second[T any](_ T, err error) error { return err }

func TestTextOfATokenIsThatOfOneCluster(t *testing.T) {
	text := NewText(random(t), "", "c1")
	accessor, hash, err := Parse(text, "c1")
	need.OK(t, err)
	expect.Equal(t, hash, HashOf(text), "hash")
	again, _, err := Parse(NewText(random(t), accessor, "c1"), "c1")
	need.OK(t, err)
	expect.Equal(t, again, accessor, "accessor of another secret")

	_, _, err = Parse(text, "c2")
	expect.That(t, err != nil && strings.Contains(err.Error(), "another cluster's"), "in another cluster: %v", err)
	for i := range text {
		changed := text[:i] + string(rune(text[i]^1)) + text[i+1:]
		_, _, err := Parse(changed, "c1")
		expect.That(t, err != nil && !strings.Contains(err.Error(), text[30:60]), "with character %d changed: %v", i, err)
		_, _, err = Parse(text[:i], "c1")
		expect.That(t, err != nil, "cut off after %d characters, it is taken", i)
	}
}

// granted returns a token with roles, and its text.
func granted(t testing.TB, name string, roles ...string) (*Token, string) {
	t.Helper()
	text := NewText(random(t), "", "c1")
	accessor, hash, err := Parse(text, "c1")
	need.OK(t, err)
	return &Token{Accessor: accessor, Name: name, Roles: roles, Secrets: []Secret{{Hash: hash}}}, text
}

// applied makes a change that must succeed.
func applied(t testing.TB, table *Table, op Change, wall int64) *Table {
	t.Helper()
	next, refusal := table.Apply(&op, table.Revision+1, wall)
	need.That(t, refusal == "", "refused: %s", refusal)
	expect.That(t, bytes.Equal(written(reread(t, next)), written(next)), "the table differs when it is read again")
	return next
}

func written(table *Table) []byte {
	w := codec.Writer(nil, codec.Newest)
	table.Fields(&w)
	return w.Written()
}

func reread(t testing.TB, table *Table) *Table {
	t.Helper()
	r := codec.Reader(written(table))
	var back Content
	back.Fields(&r)
	need.OK(t, r.End())
	return need.Got(TableOf(back))(t)
}

func refused(t testing.TB, table *Table, op Change, wall int64, words string) {
	t.Helper()
	next, refusal := table.Apply(&op, table.Revision+1, wall)
	expect.That(t, strings.Contains(refusal, words), "refused with %q, want words like %q", refusal, words)
	expect.That(t, next == table, "a change that was refused changed something")
}

// founded returns a table with one operator.
func founded(t testing.TB) (*Table, *Token) {
	t.Helper()
	operator, _ := granted(t, "ann", "operator")
	return applied(t, new(Table), Change{
		Bootstrap: true, PutRoles: []*Role{{Name: "operator", Rules: Everything()}}, Create: []*Token{operator},
	}, 1000), operator
}

func TestClusterIsBootstrappedOnce(t *testing.T) {
	table, _ := founded(t)
	other, _ := granted(t, "eve", "operator")
	refused(t, table, Change{Bootstrap: true, Create: []*Token{other}}, 1000, "already")
}

func TestLastOperatorStaysUnlessOneIsSure(t *testing.T) {
	table, operator := founded(t)
	last := "nobody would be left"
	refused(t, table, Change{Revoke: []string{operator.Accessor}}, 2000, last)
	refused(t, table, Change{DropRoles: []string{"operator"}}, 2000, last)
	refused(t, table, Change{PutRoles: []*Role{{Name: "operator", Rules: rules(t, "auth read")}}}, 2000, last)
	second, _ := granted(t, "bob", "operator")
	second.Expires = 5000
	table = applied(t, table, Change{Create: []*Token{second}}, 2000)
	refused(t, table, Change{Revoke: []string{operator.Accessor}}, 5000, last)                   // bob's has ended
	refused(t, table, Change{Revoke: []string{operator.Accessor}}, 4000, "only tokens that end") // bob's will have
	third, _ := granted(t, "cid", "operator")
	applied(t, applied(t, table, Change{Create: []*Token{third}}, 4000), Change{Revoke: []string{operator.Accessor}}, 4000)
	applied(t, table, Change{Sure: true, Revoke: []string{operator.Accessor, second.Accessor}}, 4000)
}

func TestNamesOfCallersWithoutATokenAreNoTokens(t *testing.T) {
	table, _ := founded(t)
	for _, name := range ownNames {
		k, _ := granted(t, name)
		refused(t, table, Change{Create: []*Token{k}}, 2000, "choose another")
	}
}

// TestSecretThatWasPromisedIsNotEndedByTheWay: a token keeps two of three secrets.
func TestSecretThatWasPromisedIsNotEndedByTheWay(t *testing.T) {
	table, operator := founded(t)
	rotation := func(until int64, secret byte) []Rotation {
		return []Rotation{{Accessor: operator.Accessor, Hash: [32]byte{secret}, Until: until}}
	}
	table = applied(t, table, Change{Rotate: rotation(9000, 1)}, 2000)
	refused(t, table, Change{Rotate: rotation(9500, 2)}, 3000, "two secrets until 1970-01-01T00:00:09Z")
	applied(t, table, Change{Rotate: rotation(0, 2)}, 3000) // which should end all others
	applied(t, table, Change{Sure: true, Rotate: rotation(9500, 2)}, 3000)
	applied(t, table, Change{Rotate: rotation(9900, 2)}, 9000)
}

func TestRevokedTokenNeverComesBack(t *testing.T) {
	table, _ := founded(t)
	orders, _ := granted(t, "orders")
	table = applied(t, table, Change{Create: []*Token{orders}}, 2000)
	need.That(t, table.Holder(orders.Accessor) != nil, "the token is not there")
	refused(t, table, Change{Create: []*Token{orders}}, 2000, "already")
	table = applied(t, table, Change{Revoke: []string{orders.Accessor}}, 3000)
	expect.That(t, table.Holder(orders.Accessor) == nil, "the token is good after it was revoked")
	refused(t, table, Change{Create: []*Token{orders}}, 4000, "revoked")
	table = applied(t, table, Change{Return: true, Create: []*Token{orders}}, 4000)
	expect.That(t, table.Holder(orders.Accessor) == nil, "a restore has brought a revoked token back")
}

func TestTwoSecretsAreGoodForATime(t *testing.T) {
	table, _ := founded(t)
	orders, first := granted(t, "orders")
	table = applied(t, table, Change{Create: []*Token{orders}}, 2000)
	next := NewText(random(t), orders.Accessor, "c1")
	table = applied(t, table, Change{Rotate: []Rotation{{orders.Accessor, HashOf(next), 9000}}}, 3000)
	good := func(text string, wall int64) bool { return table.Holder(orders.Accessor).Good(HashOf(text), wall) }
	expect.That(t, good(first, 8999) && good(next, 8999), "both are good meanwhile")
	expect.That(t, !good(first, 9000) && good(next, 9000), "afterwards the new one alone")
	third := NewText(random(t), orders.Accessor, "c1")
	table = applied(t, table, Change{Rotate: []Rotation{{orders.Accessor, HashOf(third), 4000}}}, 4000)
	expect.That(t, !good(first, 4000) && !good(next, 4000) && good(third, 4000), "without a time the new one alone is good")
}

func TestTokenNeedsRolesThatThereAre(t *testing.T) {
	table, _ := founded(t)
	orders, _ := granted(t, "orders", "service")
	refused(t, table, Change{Create: []*Token{orders}}, 1, `no role "service"`)
	table = applied(t, table, Change{PutRoles: []*Role{{Name: "service", Rules: rules(t, "app A read")}}, Create: []*Token{orders}}, 1)
	read := Need{Resource: App, Name: "A", Verb: Read}
	expect.That(t, table.Holder(orders.Accessor).Policy.Allows(read), "the role does not count")
	table = applied(t, table, Change{DropRoles: []string{"service"}}, 1)
	expect.That(t, !table.Holder(orders.Accessor).Policy.Allows(read), "a role that was taken away counts")
	refused(t, table, Change{DropRoles: []string{"service"}}, 1, "no role")
}

func TestTableThatContradictsItselfIsRefused(t *testing.T) {
	table, operator := founded(t)
	for name, spoil := range map[string]func(*Table){
		"two roles of a name":      func(t *Table) { t.Roles = append(t.Roles, t.Roles[0]) },
		"two tokens":               func(t *Table) { t.Tokens = append(t.Tokens, t.Tokens[0]) },
		"a revoked token":          func(t *Table) { t.Revoked = []string{operator.Accessor} },
		"a token without a secret": func(t *Table) { t.Tokens[0] = &Token{Accessor: operator.Accessor, Name: "a"} },
		"a rule of nothing":        func(t *Table) { t.Roles[0] = &Role{Name: "operator", Rules: []Rule{{}}} },
	} {
		bad := reread(t, table)
		spoil(bad)
		expect.That(t, expect.Err(TableOf(bad.Content)) != nil, "%s: it is taken", name)
	}
}

// TestManyTokensAreSmall checks that 1,000 tokens and 200 roles take less than 1 MB.
func TestManyTokensAreSmall(t *testing.T) {
	table, _ := founded(t)
	var op Change
	for i := range 200 {
		op.PutRoles = append(op.PutRoles, &Role{Name: fmt.Sprintf("role-%d", i), Rules: rules(t, "app {app} read,register", "app * read", fmt.Sprintf("kv team-%d/ read,write", i))})
	}
	for i := range 1000 {
		k, _ := granted(t, fmt.Sprintf("service-%d", i), fmt.Sprintf("role-%d", i%200))
		k.App = fmt.Sprintf("SERVICE-%d", i)
		op.Create = append(op.Create, k)
	}
	table = applied(t, table, op, 1)
	expect.That(t, table.Bytes() < 1_000_000, "they are counted as %d bytes", table.Bytes())
}

// Roles from before the right existed keep what they could do, once; roles made later have it only if they say so.
func TestRolesOfPeersAreGrantedTakeover(t *testing.T) {
	table, _ := founded(t)
	put := func(name string, texts ...string) {
		table = applied(t, table, Change{PutRoles: []*Role{{Name: name, Rules: rules(t, texts...)}}}, 2000)
	}
	put("peers", "app * read", "peer dc2 exchange", "peer dc3 exchange")
	put("service", "app {app} register")
	next, granted := table.GrantTakeover(table.Revision + 1)
	expect.Slice(t, granted, []string{"peers"}, "granted")
	expect.Equal(t, next.Role("peers").String(), "app * read; peer dc2 exchange,takeover; peer dc3 exchange,takeover", "the role")
	expect.That(t, table.Role("peers").Rules[1].Verbs == Exchange && next.Revision == table.Revision+1, "the table before has changed, or the next has no revision of its own")
	again, granted := next.GrantTakeover(next.Revision + 1)
	expect.That(t, again == next && granted == nil, "granted again: %v", granted)
	w := codec.Needer()
	next.Role("peers").fields(&w)
	expect.Equal(t, w.Need(), byte(3), "the role needs level")
}

func BenchmarkDecision(b *testing.B) {
	var all []string
	for i := range 100 {
		all = append(all, fmt.Sprintf("app TEAM-%d-* read,register", i), fmt.Sprintf("app SERVICE-%d register", i))
	}
	p := Compile("ORDERS", &Role{Name: "r", Rules: rules(b, append(all, "app {app} register", "app * read")...)})
	n := Need{Resource: App, Name: "TEAM-77-ORDERS", Verb: Register}
	need.That(b, p.Allows(n), "not allowed")
	b.ReportAllocs()
	for b.Loop() {
		p.Allows(n)
	}
}

func FuzzTable(f *testing.F) {
	table, _ := founded(f)
	f.Add(written(table))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := codec.Reader(b)
		var read Content
		read.Fields(&r)
		table, err := TableOf(read)
		if r.End() != nil || err != nil {
			return
		}
		expect.That(t, bytes.Equal(written(table), b), "the table differs when it is written again")
		table.governed(1)
	})
}

func FuzzRule(f *testing.F) {
	f.Add("app ORDERS read,register")
	f.Fuzz(func(t *testing.T, text string) {
		rule, err := ParseRule(text)
		if err != nil {
			return
		}
		again, err := ParseRule(rule.String())
		expect.That(t, err == nil && again == rule, "%q is read as %v, and that as %v (%v)", text, rule, again, err)
	})
}

// A restore brings back what was lost, but no token that was revoked here or in the file, and no milder mode.
func TestRestoringBringsBackWhatIsLostAlone(t *testing.T) {
	token := func(accessor, name string) *Token {
		return &Token{Accessor: strings.Repeat(accessor, accessorLen), Name: name, Roles: []string{"all"}, Secrets: []Secret{{}}}
	}
	accessor := func(letter string) string { return strings.Repeat(letter, accessorLen) }
	apply := func(t *testing.T, table *Table, op Change) *Table {
		t.Helper()
		next, refusal := table.Apply(&op, table.Revision+1, 1000)
		need.Equal(t, refusal, "", "refused:")
		return next
	}
	roles := []*Role{{Name: "all", Rules: Everything()}}
	saved := apply(t, new(Table), Change{Bootstrap: true, Mode: LogOnly, PutRoles: roles, Create: []*Token{token("a", "a"), token("b", "b"), token("c", "c"), token("d", "d")}})
	saved = apply(t, saved, Change{Revoke: []string{accessor("d")}})
	now := apply(t, saved, Change{Mode: On, Revoke: []string{accessor("b")}, PutRoles: []*Role{{Name: "all", Rules: Everything()[:4]}, {Name: "new"}}, Create: []*Token{token("e", "e")}, Sure: true})
	now = apply(t, now, Change{Rotate: []Rotation{{Accessor: accessor("c"), Hash: [32]byte{1}}}, Sure: true})

	was := saved.Saved()
	expect.Equal(t, apply(t, now, was.Restoring(now.Mode)).Digest(), now.Digest(), "of what was never lost something changed:")

	empty := apply(t, new(Table), was.Restoring(Unset))
	expect.Equal(t, empty.Digest(), saved.Digest(), "in a new cluster:")
	expect.Equal(t, apply(t, empty, was.Restoring(On)).Mode, On, "the mode:")
	_, refusal := empty.Apply(new(Founding(token("f", "f"))), 9, 1000)
	expect.That(t, refusal != "", "the restored cluster gets another first operator")
	again := apply(t, apply(t, new(Table), now.Content.Restoring(Unset)), was.Restoring(Unset))
	expect.That(t, again.Holder(accessor("b")) == nil && again.Holder(accessor("a")) != nil, "an older snapshot brought back what a newer one says was revoked")
}

func TestParseTargetReadsTargetsAndNamesMistakes(t *testing.T) {
	for _, tc := range []struct {
		text string
		in   string // an address and port in it
		out  string
		err  string
	}{
		{text: "10.0.0.0/8:*", in: "10.1.2.3:22", out: "11.0.0.1:22"},
		{text: "10.0.0.0/8:8080", in: "10.1.2.3:8080", out: "10.1.2.3:22"},
		{text: "10.0.0.7:80", in: "10.0.0.7:80", out: "10.0.0.8:80"},
		{text: "[fd00::/8]:443", in: "[fd12::1]:443", out: "[fe12::1]:443"},
		{text: "[fd00::1]:*", in: "[fd00::1]:1", out: "[fd00::2]:1"},
		{text: "10.0.0.0/8", err: "no port"},
		{text: "10.0.0.0/8:0", err: "no port from 1 to 65535"},
		{text: "10.0.0.0/99:80", err: "does not begin with a CIDR"},
		{text: "example.com:80", err: "does not begin with a CIDR"},
	} {
		target, err := ParseTarget(tc.text)
		if tc.err != "" {
			expect.ErrorSays(t, err, tc.err, "%s:", tc.text)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.text, err)
			continue
		}
		again, err := ParseTarget(target.String())
		expect.That(t, err == nil && again == target, "%s is written %s, which is read as %v, %v", tc.text, target, again, err)
		in, out := netip.MustParseAddrPort(tc.in), netip.MustParseAddrPort(tc.out)
		expect.That(t, target.Contains(in) && !target.Contains(out), "%s contains %s: %v, and %s: %v", tc.text, in, target.Contains(in), out, target.Contains(out))
		p := Compile("", &Role{Name: "r", Rules: rules(t, "check-target "+tc.text+" probe")})
		expect.That(t, p.Allows(ToProbe(tc.in)) && !p.Allows(ToProbe(tc.out)), "a rule with %s decides otherwise", tc.text)
	}
}

func TestRuleThatNamesNoTargetIsRefused(t *testing.T) {
	for _, text := range []string{"check-target 10.0.0.0/8 probe", "check-target example.com:80 probe", "check-target {app}:80 probe", "check-target * probe"} {
		expect.That(t, expect.Err(ParseRule(text)) != nil, "%q is taken", text)
	}
	var none *Policy
	expect.That(t, !none.Allows(ToProbe("10.0.0.1:80")), "no policy lets checks look at something")
}

package shredding_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// byPath declares a personal field whose subject stands at a path.
func byPath(path, class, subject string) shredding.Declaration {
	return shredding.Declaration{Path: path, Class: class, Subject: json.RawMessage(fmt.Sprintf(`{"path":%q,"type":"person"}`, subject))}
}

func byRole(path, class, role string) shredding.Declaration {
	return shredding.Declaration{Path: path, Class: class, Subject: json.RawMessage(fmt.Sprintf(`{"entity_role":%q}`, role))}
}

func manifest(t testing.TB, declared ...shredding.Declaration) *shredding.Manifest {
	t.Helper()
	m, found := shredding.ParseManifest(declared)
	require.Empty(t, found)
	return m
}

// contacts is the manifest of the examples.
func contacts(t testing.TB) *shredding.Manifest {
	return manifest(t, byPath("$.contacts[*].email", "contact", "$.contacts[*].person_id"), byRole("$.bank.iban", "bank", "payee"))
}

// codes gives "field code" of every finding.
func codes(found []fault.Violation) []string {
	out := []string{}
	for _, v := range found {
		out = append(out, v.Field+" "+v.Code)
	}
	return out
}

func TestPaths(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"$.a", "$.a.b", "$.a[*]", "$.a[*][*].b-c_D1", "$.größe", "$" + strings.Repeat(".a", 32)} {
		p, err := shredding.ParsePath(text)
		require.NoError(t, err, text)
		require.Equal(t, text, shredding.PathText(p))
	}
	for _, text := range []string{
		"", "$", "a", ".a", "$a", "$.", "$..a", "$.a.", "$[*]", "$.a[0]", "$.a[", "$.a[*", "$.a*", "$.a[*]b", "$.a]", "$.$pii", "$.a b", "$.'a'",
		"$.a[?(@.b)]", "$.a\n", "$.a/b", "$.a~b", "$.\xff", "$" + strings.Repeat(".a", 33), "$." + strings.Repeat("a", 257), "$" + strings.Repeat(".a", 600),
	} {
		_, err := shredding.ParsePath(text)
		require.Equal(t, "pii.path_invalid", fault.CodeOf(err), "%q", text)
	}
}

// FuzzPath holds the parser to its promise: no panic, and one spelling per path.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"$.contacts[*].email", "$", "$.a[*][*]", "$..a", "$.a[", "$.ä"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := shredding.ParsePath(text)
		if err != nil {
			require.Equal(t, "pii.path_invalid", fault.CodeOf(err))
			return
		}
		require.Equal(t, text, shredding.PathText(p))
		m, found := shredding.ParseManifest([]shredding.Declaration{byRole(text, "contact", "payee")})
		require.Empty(t, found)
		_, _ = m.Resolve([]byte(`{"data":{"a":[[1]],"contacts":[{"email":1}]}}`), "/data", nil)
		m.Check(shredding.EventType{Schema: json.RawMessage(contactSchema)})
	})
}

func TestParseManifest_Refusals(t *testing.T) {
	t.Parallel()
	raw := func(path, class, subject string) shredding.Declaration {
		return shredding.Declaration{Path: path, Class: class, Subject: json.RawMessage(subject)}
	}
	for name, c := range map[string]struct {
		declared []shredding.Declaration
		want     []string
	}{
		"path and class":   {[]shredding.Declaration{byRole("$", "secret", "payee")}, []string{"/pii_fields/0/path pii.path_invalid", "/pii_fields/0/class pii.class_invalid"}},
		"no subject":       {[]shredding.Declaration{raw("$.a", "bank", "")}, []string{"/pii_fields/0/subject pii.subject_invalid"}},
		"null subject":     {[]shredding.Declaration{raw("$.a", "bank", "null")}, []string{"/pii_fields/0/subject pii.subject_invalid"}},
		"both subjects":    {[]shredding.Declaration{raw("$.a", "bank", `{"path":"$.b","type":"x","entity_role":"y"}`)}, []string{"/pii_fields/0/subject pii.subject_invalid"}},
		"path alone":       {[]shredding.Declaration{raw("$.a", "bank", `{"path":"$.b"}`)}, []string{"/pii_fields/0/subject pii.subject_invalid"}},
		"unknown member":   {[]shredding.Declaration{raw("$.a", "bank", `{"entity_role":"y","x":1}`)}, []string{"/pii_fields/0/subject pii.subject_invalid"}},
		"two values":       {[]shredding.Declaration{raw("$.a", "bank", `{"entity_role":"y"}{}`)}, []string{"/pii_fields/0/subject pii.subject_invalid"}},
		"subject type":     {[]shredding.Declaration{raw("$.a", "bank", `{"path":"$.b","type":"x:y"}`)}, []string{"/pii_fields/0/subject/type pii.subject_invalid"}},
		"subject path":     {[]shredding.Declaration{raw("$.a", "bank", `{"path":"b","type":"x"}`)}, []string{"/pii_fields/0/subject/path pii.path_invalid"}},
		"many subjects":    {[]shredding.Declaration{byPath("$.a", "bank", "$.b[*].id")}, []string{"/pii_fields/0/subject/path pii.subject_invalid"}},
		"other elements":   {[]shredding.Declaration{byPath("$.a[*].x", "bank", "$.b[*].id")}, []string{"/pii_fields/0/subject/path pii.subject_invalid"}},
		"same path":        {[]shredding.Declaration{byRole("$.a", "bank", "p"), byRole("$.a", "tax", "p")}, []string{"/pii_fields/1/path pii.paths_overlap"}},
		"inside":           {[]shredding.Declaration{byRole("$.a", "bank", "p"), byRole("$.a[*].b", "tax", "p")}, []string{"/pii_fields/1/path pii.paths_overlap"}},
		"around":           {[]shredding.Declaration{byRole("$.a.b", "bank", "p"), byRole("$.a", "tax", "p")}, []string{"/pii_fields/1/path pii.paths_overlap"}},
		"personal subject": {[]shredding.Declaration{byPath("$.a", "bank", "$.b.id"), byRole("$.b", "identity", "p")}, []string{"/pii_fields/0/subject/path pii.subject_is_personal"}},
		"own subject":      {[]shredding.Declaration{byPath("$.a", "bank", "$.a")}, []string{"/pii_fields/0/subject/path pii.subject_is_personal"}},
		"subject around":   {[]shredding.Declaration{byPath("$.a.b", "bank", "$.a")}, []string{"/pii_fields/0/subject/path pii.subject_is_personal"}},
		"too many":         {make([]shredding.Declaration, 65), []string{"/pii_fields pii.too_many_fields"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, found := shredding.ParseManifest(c.declared)
			require.Nil(t, m)
			require.Equal(t, c.want, codes(found))
		})
	}
	m := manifest(t, byRole("$.ab", "bank", "p"), byRole("$.a", "tax", "p"), byRole("$.c[*].a", "tax", "p"), byRole("$.c[*].b", "tax", "p"))
	require.False(t, m.Empty())
	require.True(t, manifest(t).Empty())
	require.True(t, (*shredding.Manifest)(nil).Empty())
}

func TestResolve(t *testing.T) {
	t.Parallel()
	payee := event.EntityRef{Type: "vendor", ID: "V-1", Role: "payee"}
	other := event.EntityRef{Type: "vendor", ID: "V-2", Role: "buyer"}
	document := []byte(`{"data": { "bank" : {"iban":"x"}, "contacts":[ {"email":"a","person_id":"P-1"} , {"person_id":"P-2"}, {"person_id":"\u0050-3","email":null} ] },"dimensions":{}}`)
	fields, err := contacts(t).Resolve(document, "/data", []event.EntityRef{other, payee})
	require.NoError(t, err)
	require.Equal(t, []shredding.Field{
		{Pointer: "/data/contacts/0/email", Class: "contact", Subject: "person:P-1"},
		{Pointer: "/data/contacts/2/email", Class: "contact", Subject: "person:P-3"},
		{Pointer: "/data/bank/iban", Class: "bank", Subject: "vendor:V-1"},
	}, fields)

	deep := manifest(t, byPath("$.a[*].b[*][*].c", "contact", "$.a[*].who.id"), byPath("$.free", "free_text", "$.owner"))
	fields, err = deep.Resolve([]byte(`{"owner":"O","a":[{"who":{"id":"1"},"b":[[{"c":1},{}],[]]},{"b":[]},{"who":{"id":"2"},"b":[[],[{"c":{"d":[]}}]]}],"free":"x"}`), "", nil)
	require.NoError(t, err)
	require.Equal(t, []shredding.Field{
		{Pointer: "/a/0/b/0/0/c", Class: "contact", Subject: "person:1"},
		{Pointer: "/a/2/b/1/0/c", Class: "contact", Subject: "person:2"},
		{Pointer: "/free", Class: "free_text", Subject: "person:O"},
	}, fields)

	for _, empty := range []string{`{}`, `{"data":{}}`, `{"data":{"contacts":[],"bank":{}}}`, `{"data":{"contacts":null,"bank":null}}`, `{"data":[]}`, `{"data":{"contacts":{"email":1}}}`} {
		fields, err := contacts(t).Resolve([]byte(empty), "/data", nil)
		require.NoError(t, err)
		require.Empty(t, fields)
	}
}

func TestResolve_Refusals(t *testing.T) {
	t.Parallel()
	payee := event.EntityRef{Type: "vendor", ID: "V-1", Role: "payee"}
	many := func(n int, element string) string {
		return `{"contacts":[` + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + `]}`
	}
	persons := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`{"email":1,"person_id":"P-%d"}`, i))
		}
		return `{"contacts":[` + strings.Join(list, ",") + `]}`
	}
	for name, c := range map[string]struct {
		data     string
		entities []event.EntityRef
		code     string
		field    string
	}{
		"no subject":      {`{"contacts":[{"person_id":"P"},{"email":"x"}]}`, nil, "pii.subject_missing", "/contacts/1/email"},
		"null subject":    {`{"contacts":[{"email":"x","person_id":null}]}`, nil, "pii.subject_missing", "/contacts/0/email"},
		"number":          {`{"contacts":[{"email":"x","person_id":1}]}`, nil, "pii.subject_missing", "/contacts/0/email"},
		"empty subject":   {`{"contacts":[{"email":"x","person_id":""}]}`, nil, "pii.subject_missing", "/contacts/0/email"},
		"another element": {`{"contacts":[{"email":"x"},{"person_id":"P"}]}`, nil, "pii.subject_missing", "/contacts/0/email"},
		"charset":         {`{"contacts":[{"email":"x","person_id":"ada@example.org"}]}`, nil, "pii.subject_invalid", "/contacts/0/email"},
		"iban":            {`{"contacts":[{"email":"x","person_id":"DE89370400440532013000"}]}`, nil, "pii.in_identifier", "/contacts/0/email"},
		"no role":         {`{"bank":{"iban":"x"}}`, nil, "pii.subject_missing", "/bank/iban"},
		"role twice":      {`{"bank":{"iban":"x"}}`, []event.EntityRef{payee, payee}, "pii.subject_missing", "/bank/iban"},
		"role without id": {`{"bank":{"iban":"x"}}`, []event.EntityRef{{Type: "vendor", Role: "payee"}}, "pii.subject_missing", "/bank/iban"},
		"too many fields": {many(65, `{"email":1,"person_id":"P"}`), nil, "pii.too_many_fields", ""},
		"17 subjects":     {persons(17), nil, "pii.too_many_subjects", ""},
		"sealed":          {`{"contacts":[{"email":{"$pii":"x","sub":"person:P"},"person_id":"P"}]}`, nil, "pii.reserved_name", ""},
		"sealed outside":  {`{"other":[{"x":{"\u0024\u0070ii" : 1}}]}`, nil, "pii.reserved_name", ""},
		"sealed, folded":  {`{"$PII":1}`, nil, "pii.reserved_name", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fields, err := contacts(t).Resolve([]byte(c.data), "", c.entities)
			require.Nil(t, fields)
			f, ok := fault.As(err)
			require.True(t, ok, "%v", err)
			require.Equal(t, []string{c.code, c.field}, []string{f.Code, f.Field})
		})
	}
	fields, err := contacts(t).Resolve([]byte(persons(16)), "", nil)
	require.NoError(t, err)
	require.Len(t, fields, 16)
	fields, err = contacts(t).Resolve([]byte(many(64, `{"email":1,"person_id":"P"}`)), "", nil)
	require.NoError(t, err)
	require.Len(t, fields, 64)

	for _, fine := range []string{`{"a":"$pii"}`, `{"a":["$pii","x"],"b":"\"$pii\":"}`, `{"pii":1,"$pi":2,"$piii":3,"a$pii":4}`, `"$pii"`, `{"\u0041":"\\$pii"}`} {
		require.NoError(t, shredding.CheckReserved([]byte(fine)), fine)
	}
	_, err = (*shredding.Manifest)(nil).Resolve([]byte(`{"$pii":1}`), "", nil)
	require.Equal(t, "pii.reserved_name", fault.CodeOf(err), "a type without personal fields is no way in")
}

// An array of many elements is read once per field, not once per element.
func TestResolve_LinearTime(t *testing.T) {
	t.Parallel()
	document := []byte(`{"contacts":[` + strings.Repeat(`{},`, 300_000) + `{"email":1,"person_id":"P"}]}`)
	fields, err := contacts(t).Resolve(document, "", nil)
	require.NoError(t, err)
	require.Equal(t, "/contacts/300000/email", fields[0].Pointer)
}

func TestClassAt(t *testing.T) {
	t.Parallel()
	m, findings := shredding.ParseManifest([]shredding.Declaration{
		{Path: "$.contacts[*].email", Class: "contact", Subject: json.RawMessage(`{"path":"$.contacts[*].person_id","type":"person"}`)},
		{Path: "$.bank.iban", Class: "bank", Subject: json.RawMessage(`{"entity_role":"payee"}`)},
	})
	require.Empty(t, findings)
	for _, c := range []struct {
		pointer, data string
		want          shredding.Class
	}{
		{"/data/contacts/0/email", "/data", shredding.Contact},
		{"/data/contacts/17/email", "/data", shredding.Contact},
		{"/contacts/17/email", "", shredding.Contact},
		{"/data/bank/iban", "/data", shredding.Bank},
		{"/data/contacts/x/email", "/data", ""},
		{"/data/contacts//email", "/data", ""},
		{"/data/contacts/0/phone", "/data", ""},
		{"/data/bank", "/data", ""},
		{"/bank/iban", "/data", ""},
		{"/database/bank/iban", "/data", ""},
		{"", "", ""},
	} {
		got, found := m.ClassAt(c.pointer, c.data)
		require.Equal(t, c.want, got, c.pointer)
		require.Equal(t, c.want != "", found, c.pointer)
	}
	_, found := (*shredding.Manifest)(nil).ClassAt("/data/x", "/data")
	require.False(t, found)
}

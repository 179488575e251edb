package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/modules"
)

// sentRequest is what a command sent to one route.
type sentRequest struct {
	operation *openapi3.Operation
	query     url.Values
	body      []byte
}

// requestRecorder is a server that records what commands send. It answers an empty object, and refuses feeds,
// which would go on for ever.
type requestRecorder struct {
	*httptest.Server
	mu   sync.Mutex
	sent []sentRequest
}

func newRequestRecorder(t *testing.T, router routers.Router) *requestRecorder {
	t.Helper()
	r := &requestRecorder{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		route, _, err := router.FindRoute(req)
		if err != nil {
			t.Errorf("%s %s: %v", req.Method, req.URL, err)
			return
		}
		r.mu.Lock()
		r.sent = append(r.sent, sentRequest{route.Operation, req.URL.Query(), body})
		r.mu.Unlock()
		if strings.HasPrefix(req.URL.Path, "/api/subscribe/") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(r.Close)
	return r
}

// TestDefaults runs every command that calls a server with the arguments and required flags of its example and no
// others. What it sends must mean what the route means when the parameter or member is left out, and the help of its
// flags must say so.
func TestDefaults(t *testing.T) {
	for _, name := range []string{"BACKBONE_LEGAL_ENTITY", "BACKBONE_SERVER", "BACKBONE_TOKEN", "BACKBONE_ACCESS_REASON"} {
		t.Setenv(name, "")
	}
	document, err := os.ReadFile(filepath.Join("..", "..", "adapters", "httpapi", "openapi", "assembled.yaml"))
	require.NoError(t, err)
	api, err := openapi3.NewLoader().LoadFromData(document)
	require.NoError(t, err)
	api.Servers = nil
	router, err := legacy.NewRouter(api)
	require.NoError(t, err)
	invoice, err := os.ReadFile(filepath.Join("..", "..", "test", "samples", "ubl", "06-invoice-dkk-rounding.xml"))
	require.NoError(t, err)
	statement, err := os.ReadFile(filepath.Join("..", "..", "test", "samples", "camt", "01-statement-v02.xml"))
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	for name, content := range map[string]string{
		"pain002.xml": `<Document xmlns="urn:iso:std:iso:20022:tech:xsd:pain.002.001.10"><CstmrPmtStsRpt><GrpHdr><MsgId>B1</MsgId></GrpHdr><OrgnlGrpInfAndSts><OrgnlMsgId>R1</OrgnlMsgId></OrgnlGrpInfAndSts>
			<OrgnlPmtInfAndSts><TxInfAndSts><OrgnlEndToEndId>R1-P1</OrgnlEndToEndId><TxSts>ACSP</TxSts></TxInfAndSts></OrgnlPmtInfAndSts></CstmrPmtStsRpt></Document>`,
		"inbox/invoice.xml": string(invoice), "march.xml": string(statement), "machines.yaml": "name: machines-serviced\n",
		"types/equipment.machine.serviced.v2.json": `{"type":"equipment.machine.serviced","schema_version":2}`,
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
	}
	commands, reasons := 0, maps.Clone(differences)
	var walk func(c *cobra.Command, path []string)
	walk = func(c *cobra.Command, path []string) {
		for _, sub := range c.Commands() {
			walk(sub, append(path[:len(path):len(path)], sub.Name()))
		}
		if !c.Runnable() || c.Flags().Lookup("token") == nil {
			return
		}
		commands++
		server := newRequestRecorder(t, router)
		args := exampleOf(t, c)
		runCommand(t, server.URL, args)
		name := strings.Join(path, " ")
		assert.NotEmpty(t, server.sent, "%s sent nothing: %q", name, args)
		for _, sent := range server.sent {
			checkSent(t, name, sent, args, reasons)
			c.Flags().VisitAll(func(f *pflag.Flag) { checkHelp(t, name, sent.operation, f) })
		}
	}
	walk(newRoot(modules.BuiltIn()), nil)
	require.Greater(t, commands, 60)
	require.Empty(t, reasons, "these differences are no more")
}

func runCommand(t *testing.T, server string, args []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	root := newRoot(modules.BuiltIn())
	root.SetArgs(append(args, "--server", server, "--token", "bbk_token"))
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	root.SetIn(strings.NewReader("{}"))
	if err := root.ExecuteContext(ctx); err != nil {
		t.Logf("%v: %s", args, describe(err))
	}
}

// exampleOf is the first example of a command without the flags that may be left out.
func exampleOf(t *testing.T, c *cobra.Command) []string {
	t.Helper()
	for _, words := range exampleCommands(c) {
		cmd, rest, err := newRoot(modules.BuiltIn()).Find(words)
		require.NoError(t, err)
		if cmd.CommandPath() != c.CommandPath() {
			continue
		}
		require.NoError(t, cmd.ParseFlags(rest))
		path := strings.Fields(c.CommandPath())[1:]
		args := slices.Clone(path)
		cmd.Flags().Visit(func(f *pflag.Flag) {
			_, isRequired := f.Annotations[cobra.BashCompOneRequiredFlag]
			_, isOneOf := f.Annotations["cobra_annotation_one_required"]
			if f.Name != "server" && (isRequired || isOneOf || f.Name == "legal-entity" && (readsModel(c) || slices.Contains(inOneLegalEntity, strings.Join(path, " ")))) {
				args = append(args, "--"+f.Name+"="+strings.Trim(f.Value.String(), "[]"))
			}
		})
		return append(args, cmd.Flags().Args()...)
	}
	t.Fatalf("%s has no example", c.CommandPath())
	return nil
}

// inOneLegalEntity are commands that ask no server before a legal entity is named, there or in the environment.
var inOneLegalEntity = []string{
	"ap import", "ap import-status", "ap payment-file", "entity", "gl discard-statement", "gl export", "gl import-statement", "gl match", "streams delete", "streams metadata", "streams show", "streams tombstone", "trace",
}

// readsModel reports whether a command is made from the declaration of a read model.
func readsModel(c *cobra.Command) bool { return c.Annotations[annotationReadModel] != "" }

// isAllPages reports whether a parameter is the limit of a read model, whose command follows the pages.
func isAllPages(operation *openapi3.Operation, name string) bool {
	return name == "limit" && slices.Contains(operation.Tags, "read_models")
}

// differences are the parameters and members that commands send although the caller gave none, by operation, each
// with the reason.
var differences = map[string]string{
	"exportEvents checkpoints":       "with them an export that broke off can go on; the file has none of them",
	"listDisclosures limit":          "the command follows the pages",
	"listErasureRequests limit":      "the most urgent come first, so all open requests are read; --limit bounds what is printed",
	"listErasureRequests status":     "all states, the open ones before the others",
	"listEvents direction":           "the last event of a document",
	"listEvents limit":               "the last event of a document",
	"listPrincipals limit":           "the command follows the pages",
	"readGlBankReconciliation as_of": "lines of all days are matched",
	"readStream direction":           "a paper is named by one of the last events of a document",
	"submitIntent /source/reference": "where the document came from",
	"subscribeToAll from":            "a person who looks on wants what comes, a client that processes events wants all of them",
}

// sameThing are flags that have another name than the parameter or member that they are.
var sameThing = map[string]string{
	"attempts": "limit", "checkpoint": "mode", "order": "partition_by", "retry": "retry_ms", "retry-max": "retry_max_ms", "start": "start_from", "step": "limit", "strategy": "consumer_strategy",
}

// checkSent compares the optional parameters and members that were sent with the defaults of the route, but
// for what the arguments say. It removes the reasons that it needs.
func checkSent(t *testing.T, command string, sent sentRequest, args []string, reasons map[string]string) {
	t.Helper()
	words := strings.FieldsFunc(strings.Join(args, " "), func(r rune) bool { return strings.ContainsRune(" =/:", r) })
	check := func(name, value string, schema *openapi3.Schema) {
		isGiven := slices.Contains(words, value) || slices.ContainsFunc(args, func(arg string) bool { return arg == value || strings.HasSuffix(arg, "="+value) })
		if value == "" || isGiven || isAllPages(sent.operation, name) || schema.Default != nil && fmt.Sprint(schema.Default) == value {
			return
		}
		difference := sent.operation.OperationID + " " + name
		delete(reasons, difference)
		if differences[difference] != "" {
			return
		}
		assert.Fail(t, "another default than the route's", "%s sends %s=%s to %s", command, name, value, sent.operation.OperationID)
	}
	for name, values := range sent.query {
		p := sent.operation.Parameters.GetByInAndName("query", name)
		if assert.NotNil(t, p, "%s: %s has no %s", command, sent.operation.OperationID, name) && !p.Required {
			check(name, strings.Join(values, ","), p.Schema.Value)
		}
	}
	body := bodyOf(sent.operation)
	decoder := json.NewDecoder(bytes.NewReader(sent.body))
	decoder.UseNumber()
	var document any
	if body == nil || decoder.Decode(&document) != nil {
		return
	}
	var members func(path string, value any, schema *openapi3.Schema)
	members = func(path string, value any, schema *openapi3.Schema) {
		switch value := value.(type) {
		case nil, []any: // no list has a default
		case map[string]any:
			for name, member := range value {
				if of := schema.Properties[name]; of != nil && !slices.Contains(schema.Required, name) {
					members(path+"/"+name, member, of.Value)
				}
			}
		default:
			if isZero := value == "" || value == false || value == json.Number("0"); !isZero || schema.Default != nil {
				check(path, fmt.Sprint(value), schema)
			}
		}
	}
	members("", document, body)
}

// bodyOf is the schema of a route's body, nil if it has none.
func bodyOf(operation *openapi3.Operation) *openapi3.Schema {
	if operation.RequestBody == nil {
		return nil
	}
	if content := operation.RequestBody.Value.Content.Get("application/json"); content != nil && content.Schema != nil {
		return content.Schema.Value
	}
	return nil
}

// checkHelp compares what the help says about a flag with the parameter or member of the route that it is.
func checkHelp(t *testing.T, command string, operation *openapi3.Operation, f *pflag.Flag) {
	t.Helper()
	name := cmp.Or(sameThing[f.Name], strings.ReplaceAll(f.Name, "-", "_"))
	schema, required := parameterOf(operation, name)
	switch about := fmt.Sprintf("%s --%s, %s of %s", command, f.Name, name, operation.OperationID); {
	case schema == nil || isAllPages(operation, name):
	case name == "legal_entity" && required:
		assert.Contains(t, f.Usage, "required", "%s", about)
	case name == "legal_entity":
		assert.Contains(t, f.Usage, "default: ", "%s: which are meant without it", about)
	case required || differences[operation.OperationID+" "+name] != "" && schema.Default == nil:
	case schema.Default == nil || schema.Default == false:
		assert.Contains(t, []string{"", "0", "false", "[]"}, f.DefValue, "%s has no default", about)
	default:
		standard := fmt.Sprint(schema.Default)
		isSaid := f.DefValue == standard || strings.Contains(f.Usage, "default "+standard) || strings.Contains(f.Usage, "default: "+standard)
		assert.True(t, isSaid, "%s: the default is %s, and the help says %q, %q", about, standard, f.DefValue, f.Usage)
	}
}

// parameterOf finds a parameter of a route, or a member of its body at any depth.
func parameterOf(operation *openapi3.Operation, name string) (_ *openapi3.Schema, required bool) {
	if p := operation.Parameters.GetByInAndName("query", name); p != nil {
		return p.Schema.Value, p.Required
	}
	var find func(s *openapi3.Schema) (*openapi3.Schema, bool)
	find = func(s *openapi3.Schema) (*openapi3.Schema, bool) {
		if of := s.Properties[name]; of != nil {
			return of.Value, slices.Contains(s.Required, name)
		}
		for _, member := range s.Properties {
			if found, required := find(member.Value); found != nil {
				return found, required
			}
		}
		return nil, false
	}
	if body := bodyOf(operation); body != nil {
		return find(body)
	}
	return nil, false
}

// TestLegalEntityOfTheEnvironment checks that the help of a flag says so if the environment fills it.
func TestLegalEntityOfTheEnvironment(t *testing.T) {
	t.Setenv("BACKBONE_LEGAL_ENTITY", "ENV1")
	filled := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.String() == "ENV1" {
				filled++
				assert.Contains(t, f.Usage, "environment BACKBONE_LEGAL_ENTITY", "%s --%s", c.CommandPath(), f.Name)
				assert.Empty(t, f.DefValue, "%s --%s: the help is the same in every environment", c.CommandPath(), f.Name)
			}
		})
	}
	walk(newRoot(modules.BuiltIn()))
	require.Greater(t, filled, 8)
}

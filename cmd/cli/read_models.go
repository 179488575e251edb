package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/tabular"
)

// addReadModelCommands adds a command for each read model of the modules, beside the
// commands that its module has: backbone ap open-items for ap/open-items.
func addReadModelCommands(root *cobra.Command, models map[string]module.ReadModel) {
	for _, path := range slices.Sorted(maps.Keys(models)) {
		name, _, _ := strings.Cut(path, "/")
		group := moduleGroup(root, name)
		if cmd := readModelCommand(path, models[path]); subcommand(group, cmd.Name()) == nil {
			group.AddCommand(cmd)
		}
	}
}

// moduleGroup finds or adds the command that holds those of a module.
func moduleGroup(root *cobra.Command, name string) *cobra.Command {
	group := subcommand(root, name)
	if group == nil {
		group = &cobra.Command{Use: name, Short: "Read what module " + name + " shows"}
		root.AddCommand(group)
	}
	return group
}

func subcommand(parent *cobra.Command, name string) *cobra.Command {
	for _, c := range parent.Commands() {
		if c.Name() == name {
			return c
		}
	}
	return nil
}

// reportRequest is the command line of a read model's command.
type reportRequest struct {
	path        string
	model       module.ReadModel
	legalEntity string
	query       map[string]*string // parameters by name
	limit       int
	csv         bool
}

// given are the parameters that have a value.
func (r *reportRequest) given() map[string]string {
	out := map[string]string{}
	for name, value := range r.query {
		if *value != "" {
			out[name] = *value
		}
	}
	return out
}

// annotationReadModel marks the commands that are made from a read model, with its path.
const annotationReadModel = "read_model"

// readModelCommand makes the command of a read model from its declaration.
func readModelCommand(path string, m module.ReadModel) *cobra.Command {
	r := &reportRequest{path: path, model: m, query: map[string]*string{}}
	use, arguments := commandName(m), 0
	for _, p := range m.Params {
		if p.InPath {
			use += " " + strings.ToUpper(p.Name)
			arguments++
		}
	}
	cmd := &cobra.Command{
		Use: use, Short: firstSentence(m.Description), Long: m.Description + "\n\n" + columnHelp(m.Columns),
		Example: readModelExample(path, m), Args: cobra.ExactArgs(arguments), Annotations: map[string]string{annotationReadModel: path},
	}
	f := cmd.Flags()
	legalEntityFlag(cmd, &r.legalEntity, "code of the legal entity (required; environment BACKBONE_LEGAL_ENTITY)")
	for _, p := range m.Params {
		if p.InPath {
			continue
		}
		flag := flagName(p.Name)
		r.query[p.Name] = f.String(flag, "", p.Description)
		if p.Type == module.ParamBool {
			f.Lookup(flag).NoOptDefVal = "true"
		}
		if p.Required {
			required(cmd, flag)
		}
	}
	r.query["as_of"] = f.String("as-of", "", "effective on this day or before, as 2026-03-31 (default today)")
	r.query["known_at"] = f.String("known-at", "", "as known then: an RFC 3339 time or seq:<n> (default now)")
	r.query["min_sequence"] = f.String("min-sequence", "", "wait until this sequence is shown")
	f.IntVar(&r.limit, "limit", 0, "the most rows to print (default all)")
	f.BoolVar(&r.csv, "csv", false, "print the rows as CSV")
	cmd = serverCommand(cmd, func(ctx context.Context, s *session, args []string) error { return s.readReport(ctx, r, args) })
	cmd.MarkFlagsMutuallyExclusive("json", "csv")
	return cmd
}

// commandName is the name of a read model's command: the one that it declares, else its path
// without parameters.
func commandName(m module.ReadModel) string {
	parts := strings.Split(m.Name, "/")
	parts = slices.DeleteFunc(parts, func(part string) bool { return strings.HasPrefix(part, "{") })
	return cmp.Or(m.Command, strings.Join(parts, "-"))
}

func flagName(parameter string) string { return strings.ReplaceAll(parameter, "_", "-") }

func firstSentence(text string) string {
	sentence, _, _ := strings.Cut(text, ". ")
	return strings.TrimSuffix(sentence, ".")
}

func columnHelp(columns []module.Column) string {
	return strings.TrimSuffix("Columns:\n"+pageText(func(p *page) {
		for _, c := range columns {
			p.row("  "+c.Name, c.Description)
		}
	}), "\n")
}

func readModelExample(path string, m module.ReadModel) string {
	group, _, _ := strings.Cut(path, "/")
	line := "  backbone " + group + " " + commandName(m)
	example := ""
	if m.Example != "" {
		example = " " + m.Example
	}
	return line + example + " --legal-entity DEMF --as-of 2026-03-31\n" +
		line + example + " --legal-entity DEMF --known-at seq:42 --csv"
}

func pageText(write func(p *page)) string {
	var b strings.Builder
	_ = printPage(&b, write) // into memory
	return b.String()
}

// readReport reads all pages of a report and prints them.
func (s *session) readReport(ctx context.Context, r *reportRequest, args []string) error {
	if r.legalEntity == "" {
		return exitError{2, fault.New(fault.Invalid, "request.parameter_missing", "no legal entity; set BACKBONE_LEGAL_ENTITY or --legal-entity")}
	}
	document, err := s.fetchReport(ctx, r, args)
	if err != nil {
		return err
	}
	columns := r.model.ColumnsFor(r.given())
	switch {
	case r.csv:
		return tabular.CSV(s.out, module.Table(columns), document.rows)
	case s.json:
		return printJSON(s.out, document)
	default:
		return document.print(s.out, columns)
	}
}

// fetchReport reads the pages of a report and joins them to one document.
func (s *session) fetchReport(ctx context.Context, r *reportRequest, args []string) (*reportDocument, error) {
	query := url.Values{"legal_entity": {r.legalEntity}}
	for _, p := range r.model.Params {
		if p.InPath {
			query.Set(p.Name, args[0])
			args = args[1:]
		}
	}
	for name, value := range r.given() {
		query.Set(name, value)
	}
	document := &reportDocument{rowsName: cmp.Or(r.model.RowsName, "rows")}
	for {
		size := wholePage
		if r.limit > 0 {
			size = min(size, r.limit-len(document.rows))
		}
		query.Set("limit", strconv.Itoa(size))
		var page json.RawMessage
		if err := s.ReadModel(ctx, r.path, query, nil, client.Document(&page)); err != nil {
			return nil, err
		}
		cursor, err := document.add(page)
		if err != nil {
			return nil, err
		}
		if cursor == "" || r.limit > 0 && len(document.rows) >= r.limit {
			return document, nil
		}
		query.Set("cursor", cursor)
	}
}

// reportDocument is a report of one or more pages. It keeps the order of its members.
type reportDocument struct {
	rowsName string
	members  []member // without the rows; those of the last page
	rowsAt   int      // the rows stand before this member
	rows     []json.RawMessage
}

type member struct {
	name  string
	value json.RawMessage
}

// add appends the rows of a page and takes its other members. It returns the cursor of the
// next page, "" after the last one.
func (d *reportDocument) add(page json.RawMessage) (cursor string, err error) {
	all, err := membersOf(page)
	if err != nil {
		return "", err
	}
	d.members = d.members[:0]
	for _, m := range all {
		switch m.name {
		case d.rowsName:
			d.rowsAt = len(d.members)
			var rows []json.RawMessage
			if err := json.Unmarshal(m.value, &rows); err != nil {
				return "", err
			}
			d.rows = append(d.rows, rows...)
		case "next_cursor":
			err = json.Unmarshal(m.value, &cursor)
		default:
			d.members = append(d.members, m)
		}
	}
	return cursor, err
}

// membersOf reads the members of a JSON object in their order.
func membersOf(document json.RawMessage) ([]member, error) {
	decoder := json.NewDecoder(bytes.NewReader(document))
	if _, err := decoder.Token(); err != nil {
		return nil, err
	}
	var out []member
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: fmt.Sprint(name)}
		if err := decoder.Decode(&m.value); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// MarshalJSON writes the joined document.
func (d *reportDocument) MarshalJSON() ([]byte, error) {
	rows := d.rows
	if rows == nil {
		rows = []json.RawMessage{}
	}
	list, err := json.Marshal(rows)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range slices.Insert(slices.Clone(d.members), d.rowsAt, member{d.rowsName, list}) {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:%s", m.name, m.value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

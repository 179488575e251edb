// Package jq compiles and runs programs in jq, the language of JSON filters, with gojq.
// Compiler implements ports.TransformCompiler: application/registry compiles upcasters with
// it, application/projections/custom the programs of custom projections.
//
// A program reads its document only. Compile refuses functions that read the environment,
// files, further inputs or the clock, or that print, and modules and functions whose result
// differs between machines. It rewrites the program so that every operation that costs more
// than a step is paid out of a budget first (rewrite.go, meter.go). The budget counts work,
// not time, so a busy machine gives the same result as an idle one.
//
// Numbers keep their text, and arithmetic on them is decimal and exact (number.go).
package jq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/itchyny/gojq"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/ports"
)

// Limits bound a program and each of its runs.
type Limits struct {
	ProgramBytes int
	Steps        int           // of the machine that runs programs
	Work         int           // about the bytes that operations read and make
	Time         time.Duration // steps and work end a run long before; this limit catches what they miss
	OutputBytes  int
	OutputDepth  int
}

// DefaultLimits end the most expensive program within about 100 ms of one processor.
func DefaultLimits() Limits {
	return Limits{ProgramBytes: 64 << 10, Steps: 600_000, Work: 48 << 20, Time: 2 * time.Second, OutputBytes: 1 << 20, OutputDepth: 32}
}

// Compiler implements ports.TransformCompiler.
type Compiler struct{ limits Limits }

var _ ports.TransformCompiler = Compiler{}

// New gives a compiler with DefaultLimits.
func New() Compiler { return Compiler{DefaultLimits()} }

// NewWithLimits gives a compiler with other limits.
func NewWithLimits(l Limits) Compiler { return Compiler{l} }

// The codes of faults.
const (
	codeInvalid = "transform.invalid"
	codeFailed  = "transform.failed"
	codeLimit   = "transform.limit_exceeded"
	codeOutput  = "transform.output_invalid"
)

func invalid(format string, args ...any) *fault.Error {
	return fault.New(fault.Invalid, codeInvalid, "the jq program "+format, args...)
}

// program is a compiled program. A machine executes one run at a time; concurrent runs make
// further machines.
type program struct {
	limits   Limits
	text     string // rewritten
	machines sync.Pool
}

// machine is the program's code bound to a budget.
type machine struct {
	code  *gojq.Code
	meter *meter
}

// Compile implements ports.TransformCompiler.
func (c Compiler) Compile(source string) (ports.Transform, error) {
	if len(source) > c.limits.ProgramBytes {
		return nil, invalid("is larger than %d bytes; shorten it", c.limits.ProgramBytes)
	}
	if depth(source) > maxNesting {
		return nil, invalid("nests more than %d brackets; simplify it", maxNesting)
	}
	query, err := gojq.Parse(source)
	if err != nil {
		return nil, parseFault(source, err)
	}
	text, err := rewrite(source, query)
	if err != nil {
		return nil, err
	}
	p := &program{limits: c.limits, text: text}
	m, err := p.build()
	if err != nil {
		return nil, err
	}
	p.machines.Put(m)
	return p, nil
}

// maxNesting bounds brackets inside one another; the parser recurses.
const maxNesting = 200

func depth(source string) (most int) {
	open := 0
	for i := range len(source) {
		switch source[i] {
		case '(', '[', '{':
			open++
			most = max(most, open)
		case ')', ']', '}':
			open--
		}
	}
	return most
}

func (p *program) build() (m *machine, err error) {
	defer func() {
		if recover() != nil {
			m, err = nil, invalid("cannot be compiled; simplify it")
		}
	}()
	query, err := gojq.Parse(p.text)
	if err != nil {
		return nil, invalid("cannot be compiled; simplify it").WithCause(err)
	}
	m = &machine{meter: &meter{}}
	if m.code, err = gojq.Compile(query, m.meter.functions()...); err != nil {
		return nil, invalid("cannot be compiled (%s); correct it", printable(err.Error()))
	}
	return m, nil
}

// parseFault says where a program cannot be read.
func parseFault(source string, err error) error {
	var parse *gojq.ParseError
	if !errors.As(err, &parse) {
		return invalid("cannot be read; correct it")
	}
	at := min(max(parse.Offset-len(parse.Token), 0), len(source))
	return invalid("cannot be read at %s (%s); correct it there", position(source, at), printable(err.Error())).WithField("/jq")
}

func position(source string, at int) string {
	before := source[:at]
	line := 1 + strings.Count(before, "\n")
	column := at - strings.LastIndexByte(before, '\n')
	return fmt.Sprintf("line %d, column %d", line, column)
}

// printable shortens a message of the library, which repeats the program only.
func printable(message string) string {
	message = strings.Join(strings.Fields(strings.ToValidUTF8(message, "?")), " ")
	if r := []rune(message); len(r) > 120 {
		message = string(r[:120]) + "..."
	}
	return message
}

// Apply implements ports.Transform.
func (p *program) Apply(ctx context.Context, document json.RawMessage) (out json.RawMessage, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m, _ := p.machines.Get().(*machine)
	if m == nil {
		if m, err = p.build(); err != nil {
			return nil, err
		}
	}
	defer func() {
		if recover() != nil {
			// The machine is in an unknown state and is dropped.
			out, err = nil, fault.New(fault.FailedPrecondition, codeFailed, "the jq program stopped on a value that it cannot work on; make it check what it works on")
			return
		}
		p.machines.Put(m)
	}()
	input, err := jsondoc.Decode(document)
	if err != nil {
		return nil, fault.New(fault.Invalid, "json.malformed", "the document is no JSON; send one RFC 8259 document").WithCause(err)
	}
	m.meter.start(ctx, p.limits)
	defer m.meter.stop()
	results := m.code.RunWithContext(m.meter, input)
	value, more := results.Next()
	if !more {
		return nil, invalidOutput("gives no value; it must give one object")
	}
	if failed, is := value.(error); is {
		return nil, m.meter.toFault(ctx, failed)
	}
	object, isObject := value.(map[string]any)
	if !isObject {
		return nil, invalidOutput("gives a value that is no object; it must give one object")
	}
	if second, again := results.Next(); again {
		if failed, is := second.(error); is {
			return nil, m.meter.toFault(ctx, failed)
		}
		return nil, invalidOutput("gives several values; it must give one object")
	}
	return encode(object, p.limits)
}

func invalidOutput(what string) error {
	return fault.New(fault.FailedPrecondition, codeOutput, "the jq program %s; correct it", what)
}

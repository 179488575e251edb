package ports

import (
	"context"
	"encoding/json"
)

// TransformCompiler compiles programs that make one document out of another: the
// upcasters that administrators declare.
type TransformCompiler interface {
	// Compile returns fault transform.invalid for a program that does not compile, or
	// that asks for anything but the document: files, network, environment, clock,
	// chance. Its detail names the place.
	Compile(program string) (Transform, error)
}

// Transform is a compiled program. It may be used by several goroutines at once.
type Transform interface {
	// Apply gives the one object that the program makes of a document, which has passed
	// domain/jsondoc and stays as it is. Numbers that the program hands on keep their
	// text. The same document gives the same answer everywhere. Work and size are
	// bounded. Faults, none of which repeats a value of the document:
	//
	//	transform.failed           the program ended with an error
	//	transform.limit_exceeded   it does not end, or its values grow without bound
	//	transform.output_invalid   it gives no value, several, or one that is no object
	Apply(ctx context.Context, document json.RawMessage) (json.RawMessage, error)
}

package cli

import (
	"os"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/adapters/csvinvoice"
)

// input is one document to import: a file, or a document of a CSV file.
type input struct {
	path string
	csv  *inputFile // a document of a CSV file, which is read already; nil: a file
}

// listInputs lists the documents of the files. CSV files are read at once, as only their rows say
// how many documents they have. One that is refused as a whole is one input.
func listInputs(files []string, mapping *csvinvoice.Mapping) []input {
	inputs := make([]input, 0, len(files))
	for _, path := range files {
		if mapping == nil {
			inputs = append(inputs, input{path: path})
			continue
		}
		for _, document := range readCSV(path, mapping) {
			inputs = append(inputs, input{path, document})
		}
	}
	return inputs
}

func (i input) read() *inputFile {
	if i.csv != nil {
		return i.csv
	}
	return read(i.path)
}

// result is the result of an input before anything was sent.
func (i input) result() FileResult {
	if i.csv != nil {
		return i.csv.result
	}
	return FileResult{File: i.path}
}

// readCSV reads the documents of a CSV file.
func readCSV(path string, mapping *csvinvoice.Mapping) []*inputFile {
	failed := func(err error) []*inputFile {
		return []*inputFile{{result: FileResult{File: path}, err: err}}
	}
	f, err := os.Open(path)
	if err != nil {
		return failed(&fileError{err})
	}
	defer f.Close()
	results, err := csvinvoice.Read(f, mapping)
	if _, refused := fault.As(err); refused {
		return failed(err)
	}
	if err != nil {
		return failed(&fileError{err})
	}
	documents := make([]*inputFile, len(results))
	for i, r := range results {
		documents[i] = &inputFile{document: r.Document, content: r.Content, result: FileResult{File: path, Row: r.Row}, err: r.Err}
		documents[i].describe()
	}
	return documents
}

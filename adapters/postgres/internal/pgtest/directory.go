package pgtest

import (
	"github.com/erpbackbone/backbone/domain/fault"
)

func Unwrapped(err error) error {
	f, ok := fault.As(err)
	if !ok {
		return err
	}
	return f.Unwrap()
}

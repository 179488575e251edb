package fault

import (
	"fmt"
	"reflect"
)

// RequirePositive returns an error that names the first field of a struct of limits, all of
// integers or durations, which is not greater than zero. Constructors call it instead of
// choosing a value: package configs holds the defaults, so a limit that is missing is a mistake
// of the caller that composes the service.
func RequirePositive(service string, limits any) error {
	v := reflect.ValueOf(limits)
	for i := range v.NumField() {
		if n := v.Field(i).Int(); n <= 0 {
			return fmt.Errorf("%s: %s is %d; give it a value greater than zero, as package configs has it", service, v.Type().Field(i).Name, n)
		}
	}
	return nil
}

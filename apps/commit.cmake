# Writes HEADER with VERSION and the commit of SOURCE; leaves it alone when nothing has changed.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "unknown")
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT
     "#define KVANT_VERSION \"${VERSION}\"\n#define KVANT_COMMIT \"${commit}\"\n")

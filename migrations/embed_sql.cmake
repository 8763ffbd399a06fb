# FILES: the migrations; ROLES: roles.sql; OUT: the source to write.
function(literal file out)
  file(READ ${file} text)
  # A string literal of more than 64 KB is not portable; pieces of it are joined by the compiler.
  string(LENGTH "${text}" length)
  set(result "")
  set(at 0)
  while(at LESS length)
    string(SUBSTRING "${text}" ${at} 12000 piece)
    string(APPEND result "R\"postrider_sql(${piece})postrider_sql\"\n")
    math(EXPR at "${at} + 12000")
  endwhile()
  set(${out} "${result}" PARENT_SCOPE)
endfunction()

list(SORT FILES)
set(rows "")
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME_WE)
  string(SUBSTRING ${name} 0 4 number)
  string(REGEX REPLACE "^0+" "" number ${number})
  file(SHA256 ${file} checksum)
  literal(${file} text)
  string(APPEND rows "    {${number}, \"${name}\",\n${text},\n     \"${checksum}\"},\n")
endforeach()
literal(${ROLES} roles)
file(SHA256 ${ROLES} roles_checksum)
file(WRITE ${OUT} "// Made from migrations/*.sql by embed_sql.cmake.
#include \"migrations/internal/embedded.h\"

namespace postrider::internal {
namespace {
constexpr Migration kMigrations[] = {
${rows}};
}  // namespace
absl::Span<const Migration> EmbeddedMigrations() { return kMigrations; }
absl::string_view EmbeddedRoles() {
  return
${roles};
}
absl::string_view EmbeddedRolesChecksum() { return \"${roles_checksum}\"; }
}  // namespace postrider::internal
")

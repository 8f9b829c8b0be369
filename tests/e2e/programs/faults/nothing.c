/* A process that exits at once. */
int main(void)
{
    return 0;
}
